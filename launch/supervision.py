"""Watches a run's processes until it is finished, and names whoever ends too early or keeps everybody waiting."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import zmq

from launch.host import LAST_LINES, LocalHost, how_it_ended, last_lines
from launch.memory import Memory
from launch.progress import Progress
from launch.recorder import Recorder
from pflsim.errors import RunFailed

LAST_NEWS_S = 1.0
"""For so long a process that has ended may still be heard."""
LONGEST_END_S = 30.0
POLL_MS = 500


class Supervision:
    """All processes of one run, from their start to their end."""

    def __init__(self, host: LocalHost, recorder: Recorder, logs: Path, patience_s: float) -> None:
        self._host, self._recorder, self._logs, self._patience_s = host, recorder, logs, patience_s
        self._processes: frozenset[str] = frozenset()
        self._hub = ""
        self._running: dict[str, int] = {}
        self._ended: set[str] = set()
        self.memory = Memory()
        self.processor_s = 0.0
        recorder.on_finished = lambda: self.memory.sample(self.pids)  # while everybody is still there

    def expect(self, processes: Sequence[str]) -> None:
        """These are going to run; the first is that of the server or the coordinator."""
        self._processes, self._hub = frozenset(processes), processes[0]

    @property
    def pids(self) -> list[int]:
        """Of all processes that run now, the host's excepted."""
        return list(self._running.values())

    def watch(self, progress: Progress) -> None:
        """Return when the run is finished and all its processes have ended. Raises RunFailed for any other end."""
        poller = zmq.Poller()
        poller.register(self._recorder.socket, zmq.POLLIN)
        poller.register(self._host.channel.fileno(), zmq.POLLIN)
        last_news_s = time.monotonic()
        while not self._processes <= self._ended:
            ready = dict(poller.poll(POLL_MS))
            if ready:
                last_news_s = time.monotonic()
            self._refuse_silence(time.monotonic() - last_news_s)
            if self._recorder.socket in ready:
                self._recorder.take()
            if self._host.channel.fileno() in ready:
                self._take_news(self._host.hear())
            self.memory.sample_if_cheap(self.pids)
            progress.update(())

    def _refuse_silence(self, silent_s: float) -> None:
        """The last guard against a hang: the server and the mailrooms have limits of their own, and name who waits."""
        limit_s = LONGEST_END_S if self._recorder.finished else self._patience_s + LONGEST_END_S
        if silent_s > limit_s:
            remaining = sorted(self._processes - self._ended)
            shown = ", ".join(remaining[:8]) + (f" and {len(remaining) - 8} more" if len(remaining) > 8 else "")
            raise RunFailed("launcher", f"has heard nothing for {silent_s:.0f} s; still there: {shown}")

    def _take_news(self, said: Mapping[str, Any]) -> None:
        if said["what"] == "started":
            self._running |= said["pids"]
        elif said["what"] == "ended":
            process = said["process"]
            self._running.pop(process, None)
            self._ended.add(process)
            self.processor_s += said["processor_s"]
            self._judge_end(process, said["code"])
        elif said["what"] == "failed":
            raise RunFailed("host", said["reason"])

    def _judge_end(self, process: str, code: int) -> None:
        """Whoever ends must have said goodbye, and the server must have finished the run: no code proves that."""
        if code >= 0:  # who was killed says no more
            self._recorder.await_goodbyes({process}, LAST_NEWS_S)
        if code != 0:
            self._fail(process, how_it_ended(code))
        if process not in self._recorder.said_goodbye:
            self._fail(process, f"{how_it_ended(code)} in the middle of its work")
        if process == self._hub and self._recorder.finished is None:
            self._fail(process, f"{how_it_ended(code)} before the run was finished")

    def _fail(self, process: str, how: str) -> NoReturn:
        reason = self._recorder.died.get(process)
        log = last_lines(self._logs / f"{process}.log", LAST_LINES)
        raise RunFailed(process, f"{how}{': ' + reason if reason else ''}\n{log}".rstrip())
