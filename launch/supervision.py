"""Watches a run's processes until it is finished, and names whoever ends too early or keeps everybody waiting."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import zmq

from launch.host import Host, LocalHost, how_it_ended
from launch.memory import Memory
from launch.parting import Parting
from launch.progress import Progress
from launch.reception import Reception
from launch.recorder import Recorder
from pflsim.errors import RunFailed

LAST_NEWS_S = 1.0
"""For so long a process that has ended may still be heard."""
LONGEST_END_S = 30.0
POLL_MS = 500


class Supervision:
    """All processes of one run, from their start to their end."""

    def __init__(self, host: LocalHost, recorder: Recorder, patience_s: float, others: Reception | None = None) -> None:
        """`others` are the hosts on other machines, if there are any."""
        self._host, self._recorder, self._patience_s, self._others = host, recorder, patience_s, others
        self._processes: frozenset[str] = frozenset()
        self._hub = ""
        self.parting: Parting | None = None
        """Lets the run go on without who is lost; else that ends it."""
        self._running: dict[str, int] = {}
        self._ended: set[str] = set()
        self.memory = Memory()
        self.processor_s = 0.0
        recorder.on_finished = lambda: self.memory.sample(self.pids)  # while everybody is still there

    def expect(self, processes: Sequence[str]) -> None:
        """These are going to run; the first is that of the server or the coordinator."""
        self._processes, self._hub = frozenset(processes), processes[0]

    @property
    def awaited(self) -> frozenset[str]:
        """The processes whose end is waited for: all but those of who is lost."""
        return self._processes - self.parting.processes if self.parting is not None else self._processes

    @property
    def pids(self) -> list[int]:
        """Of all processes that run now on this machine, the host's excepted."""
        return list(self._running.values())

    def watch(self, progress: Progress) -> None:
        """Return when the run is finished and all its processes have ended. Raises RunFailed for any other end."""
        poller = self._poller()
        last_news_s = time.monotonic()
        while not self.awaited <= self._ended:
            ready = dict(poller.poll(POLL_MS))
            news: list[tuple[Host, dict[str, Any]]] = [*self._others.news()] if self._others else []
            if self._host.channel.fileno() in ready:
                news.append((self._host, self._host.hear()))
            if news or self._recorder.socket in ready:
                last_news_s = time.monotonic()
            self._refuse_silence(time.monotonic() - last_news_s)
            if self._recorder.socket in ready:
                self._recorder.take()
            for host, said in news:
                self._take_news(host, said)
            self.memory.sample_if_cheap(self.pids)
            progress.update(())

    def _poller(self) -> zmq.Poller:
        poller = zmq.Poller()
        poller.register(self._recorder.socket, zmq.POLLIN)
        poller.register(self._host.channel.fileno(), zmq.POLLIN)
        if self._others is not None:
            poller.register(self._others.socket, zmq.POLLIN)
        return poller

    def _refuse_silence(self, silent_s: float) -> None:
        """The last guard against a hang: the server and the mailrooms have limits of their own, and name who waits."""
        limit_s = LONGEST_END_S if self._recorder.finished else self._patience_s + LONGEST_END_S
        if silent_s > limit_s:
            remaining = sorted(self._processes - self._ended)
            shown = ", ".join(remaining[:8]) + (f" and {len(remaining) - 8} more" if len(remaining) > 8 else "")
            raise RunFailed("launcher", f"has heard nothing for {silent_s:.0f} s; still there: {shown}")

    def _take_news(self, host: Host, said: Mapping[str, Any]) -> None:
        if said["what"] == "started" and host.is_here:
            self._running |= said["pids"]
        elif said["what"] == "ended":
            process = said["process"]
            self._running.pop(process, None)
            self._ended.add(process)
            self.processor_s += said["processor_s"]
            self._judge_end(host, process, said["code"])
        elif self.parting is not None and said["what"] in ("lost", "leaving"):
            self._ended |= set(host.processes)
            self.parting.tell(host.processes, f"{host.name}: {said['reason']}")
        elif said["what"] in ("failed", "lost", "leaving") and (host.is_here or host.processes):
            raise RunFailed(host.name, said["reason"])

    def _judge_end(self, host: Host, process: str, code: int) -> None:
        """Whoever ends must have said goodbye, and the server must have finished the run: no code proves that."""
        if code >= 0:  # who was killed says no more
            self._recorder.await_goodbyes({process}, LAST_NEWS_S)
        if self.parting is not None and process != self._hub and (code < 0 or process in self.parting.processes):
            if code < 0:
                self.parting.tell([process], how_it_ended(code) + ("" if host.is_here else f" on {host.name}"))
            return
        if code != 0:
            self._fail(host, process, how_it_ended(code))
        if process not in self._recorder.said_goodbye:
            self._fail(host, process, f"{how_it_ended(code)} in the middle of its work")
        if process == self._hub and self._recorder.finished is None:
            self._fail(host, process, f"{how_it_ended(code)} before the run was finished")

    def _fail(self, host: Host, process: str, how: str) -> NoReturn:
        if self._others is not None and (lost := self._others.lost_now()):
            raise RunFailed(lost[0].name, lost[1]["reason"])
        reason, where = self._recorder.died.get(process), "" if host.is_here else f" on {host.name}"
        raise RunFailed(process, f"{how}{where}{': ' + reason if reason else ''}\n{host.last_words(process)}".rstrip())
