"""The launcher's end of a host: starts it, hears what it says, and ends it with everything that it has started."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodes.channel import Channel
from pflsim.errors import RunFailed

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

KEEP_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1073741824:glibc.malloc.arena_max=1"
"""For glibc: keep freed memory for the next message. Fresh pages for a 40 MB vector cost more than copying it."""


class LocalHost:
    """The host process at the other end of a channel."""

    def __init__(self, log: Path) -> None:
        self.channel, there = Channel.pair()
        os.set_inheritable(there.fileno(), True)
        command = [sys.executable, "-m", "nodes.host", str(there.fileno()), str(os.getpid())]
        here = str(Path(__file__).resolve().parent.parent)
        paths = [str(Path.cwd()), here, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"GLIBC_TUNABLES": KEEP_MEMORY} | os.environ
        environment |= dict.fromkeys(THREADS, "1") | {"PYTHONPATH": os.pathsep.join(paths)}
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                pass_fds=[there.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        there.close()

    def hear(self) -> dict[str, Any]:
        """What the host says next. Raises RunFailed when it has gone."""
        said = self.channel.hear()
        if said is not None:
            return said
        raise RunFailed("host", f"has ended early, {how_it_ended(self.process.wait())}")

    def end(self) -> None:
        """Kill the host and whatever it has started that is still there."""
        self.channel.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def last_lines(log: Path, count: int) -> str:
    """The end of a log, indented; empty if there is none."""
    if not log.exists():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-count:]
    return "\n".join(f"    {line}" for line in lines)
