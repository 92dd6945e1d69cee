"""The launcher's end of a host: starts it, hears what it says, and ends it with everything that it has started."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from nodes.channel import Channel
from pflsim.errors import RunFailed

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

POLL_S = 0.5
LAST_LINES = 15
"""Of a log, to show with a failure."""

KEEP_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1073741824:glibc.malloc.arena_max=1"
"""For glibc: keep freed memory for the next message. Fresh pages for a 40 MB vector cost more than copying it."""


class Host(Protocol):
    """Whoever runs processes for a launcher, on this machine or on another."""

    name: str
    is_here: bool
    processes: tuple[str, ...]
    """The processes of clients that run there, as far as they are lost with it."""

    def say(self, what: str, **values: Any) -> None:
        """Send one map, such as an order to start processes."""

    def last_words(self, process: str) -> str:
        """The end of the log of a process that has ended there."""


class LocalHost:
    """The host process at the other end of a channel."""

    name = "host"
    is_here = True
    processes: tuple[str, ...] = ()

    def __init__(self, log: Path) -> None:
        self._log, self._is_ended = log, False
        self.channel, there = Channel.pair()
        os.set_inheritable(there.fileno(), True)
        # -P: what lies where the user works must not take the place of a library; the host itself appends that folder
        command = [sys.executable, "-P", "-m", "nodes.host", str(there.fileno()), str(os.getpid())]
        try:
            with log.open("ab") as output:
                self.process = subprocess.Popen(
                    command,
                    pass_fds=[there.fileno()],
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as problem:
            raise RunFailed("host", f"cannot be started: {problem.strerror}") from problem
        finally:
            there.close()

    def say(self, what: str, **values: Any) -> None:
        """Send one map."""
        self.channel.say(what, **values)

    def last_words(self, process: str) -> str:
        """The end of the log of a process."""
        return last_lines(self._log.parent / f"{process}.log", LAST_LINES)

    def hear(self) -> dict[str, Any]:
        """What the host says next. Raises RunFailed when it has gone."""
        said = self.channel.hear()
        if said is not None:
            return said
        how = f"has ended early, {how_it_ended(self.process.wait())}"
        raise RunFailed("host", f"{how}\n{last_lines(self._log, LAST_LINES)}".rstrip())

    def hear_within(self, patience_s: float, meanwhile: Callable[[], None]) -> dict[str, Any]:
        """The same, but RunFailed when it says nothing for so long; `meanwhile` is called now and then."""
        deadline_s = time.monotonic() + patience_s
        while not select.select([self.channel.fileno()], [], [], POLL_S)[0]:
            meanwhile()
            if time.monotonic() > deadline_s:
                raise RunFailed("host", f"has not built the study within {patience_s:g} s; run.patience_s allows more")
        return self.hear()

    def end(self) -> None:
        """Kill the host and whatever it has started that is still there."""
        if self._is_ended:
            return  # its number may be somebody else's by now
        self._is_ended = True
        self.channel.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def environment() -> dict[str, str]:
    here = str(Path(__file__).resolve().parent.parent)
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = dict.fromkeys(THREADS, "1") | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}
    return {"GLIBC_TUNABLES": KEEP_MEMORY} | dict(os.environ) | own


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        known = {one.value: one.name for one in signal.Signals}
        return f"was killed by {known.get(-code, f'signal {-code}')}"
    return f"ended with exit code {code}"


def last_lines(log: Path, count: int) -> str:
    """The end of a log, indented; empty if there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return ""
    return "\n".join(f"    {line}" for line in lines)
