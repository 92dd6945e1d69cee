"""Runs with real processes for the tests, by themselves or through the command line, and nothing of them can hide.

Everything that a run starts inherits a mark in its environment, by which it is found whatever group, session or parent
it has. When a test is over, the stacks of what is still there and the ends of all logs are printed; pytest shows them
if the test failed.
"""

import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from launch.host import last_lines
from launch.local import LocalRun
from launch.progress import Progress
from pflsim.errors import RunFailed
from pflsim.record.database import Reader
from pflsim.record.result import Result
from pflsim.spec import override_value, validate

ROOT = Path(__file__).resolve().parent.parent
MARK = "PFLSIM_TEST_MARK"
STACKS_S = 0.5
ACCIDENT = "tests.accidents:Accident"

BASE: dict[str, Any] = {
    "run": {"rounds": 3, "clients": 4, "seed": 1},
    "training": {"step_size": 0.1, "batch": 10, "local_steps": 3},
    "algorithm": {"name": "fedavg"},
    "data": {"name": "synthetic", "samples": 200},
    "model": {"name": "mlr"},
    "topology": {"name": "similar"},
    "devices": {
        "kind": "bimodal",
        "flops_per_second": "raspberry-pi",
        "stragglers": 1,
        "slowdown": 10.0,
        "server_flops_per_second": "workstation",
    },
    "links": "wifi",
    "record": {"report": False},  # its own tests ask for it
}


def description(base: Mapping[str, Any] = BASE, **settings: Any) -> dict[str, Any]:
    """The tables of a small run; `run__rounds=5` sets run.rounds, and so on."""
    tables = dict(base)
    for key, value in settings.items():
        tables = override_value(tables, key.replace("__", "."), value)
    return tables


class WatchedRun(LocalRun):
    """A run that prints the stacks of all its processes when the test's time is over."""

    def _end(self, status: str) -> None:
        if status == "failed" and not isinstance(sys.exc_info()[1], RunFailed):
            show_stacks([self._host.process.pid, *self._supervision.pids] if self._is_open else [])
            show_logs(self.directory)
        super()._end(status)


def run_here(tables: Mapping[str, Any], directory: Path, kind: type[LocalRun] = WatchedRun) -> Result:
    """Run with this process as the launcher."""
    found = validate(tables)
    return kind(found, directory, Progress(found.run.rounds, found.run.clients, quiet=True)).run()


class Launched:
    """`pflsim run` (or sweep) in a process of its own, which leads the process group that Ctrl-C reaches."""

    def __init__(
        self,
        tables: Mapping[str, Any],
        place: Path,
        *arguments: str,
        before: tuple[str, ...] = (),
        command: str = "run",
    ) -> None:
        self.out, self._place = place / "out", place
        self.mark = secrets.token_hex(8)
        self.private = Path(tempfile.mkdtemp(prefix="t-"))  # a short path, for the sockets in it
        (place / "described.toml").write_text(tomli_w.dumps(tables))
        asked = [str(self.out)] if command == "resume" else [str(place / "described.toml"), "--out", str(self.out)]
        started = [sys.executable, "-m", "launch", command, *asked]
        with (place / "stdout").open("wb") as stdout, (place / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                [*before, *started, *arguments],
                cwd=ROOT,
                env=os.environ | {MARK: self.mark, "TMPDIR": str(self.private)},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                process_group=0,
            )

    @property
    def stderr(self) -> str:
        return (self._place / "stderr").read_text()

    def finish(self, within_s: float) -> int:
        """The exit code; an error of the test when it takes longer."""
        return self.process.wait(within_s)

    def left(self) -> list[psutil.Process]:
        """What runs, whoever its parent is by now."""
        return [process for process in psutil.process_iter() if _mark_of(process) == self.mark]

    def nothing_left(self, within_s: float = 2.0) -> bool:
        """Whether the last process of the run is gone within that time."""
        return happens(lambda: not self.left(), within_s)

    def pid_of(self, actor: str) -> int:
        """The process that writes the actor's log."""
        log = str(self.out / "logs" / f"{actor}.log")
        for process in self.left():
            with suppress(psutil.Error):
                if any(file.path == log for file in process.open_files()):
                    return int(process.pid)
        raise AssertionError(f"{actor} does not run")

    def wait_for(self, what: Callable[["Launched"], bool], within_s: float = 30.0) -> None:
        """Wait until `what` is so, as long as the run goes on."""
        assert happens(lambda: self.process.poll() is not None or what(self), within_s), self.stderr
        assert self.process.poll() is None, self.stderr

    def rows(self, table: str, **where: object) -> list[dict[str, Any]]:
        """What the record says by now."""
        with suppress(FileNotFoundError, sqlite3.OperationalError), Reader(self.out / "record.db") as reader:
            return reader.rows(table, **where)
        return []  # it has no tables yet

    def end(self) -> None:
        """Show what there is to be seen, and leave nothing behind."""
        left = [process.pid for process in self.left()]
        show_stacks(left)
        print(self.stderr)
        show_logs(self.out)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.private)


def launcher(place: Path) -> Iterator[Callable[..., Launched]]:
    """What a fixture yields: `launch(tables, ...)`; all of it is ended with the test."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background job; children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    started: list[Launched] = []

    def launch(tables: Mapping[str, Any], *arguments: str, **more: Any) -> Launched:
        started.append(Launched(tables, place, *arguments, **more))
        return started[-1]

    yield launch
    for run in started:
        run.end()


def happens(what: Callable[[], bool], within_s: float) -> bool:
    """Whether `what` becomes true within that time."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if what():
            return True
        time.sleep(0.02)
    return what()


def show_stacks(pids: list[int]) -> None:
    """Have every process write its stacks into its log."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    if pids:
        time.sleep(STACKS_S)


def show_logs(directory: Path) -> None:
    """Print the end of every log of a run."""
    for log in sorted(directory.glob("logs/*.log")):
        if log.stat().st_size:
            print(f"{log.name}:\n{last_lines(log, 60)}")


def _mark_of(process: psutil.Process) -> str | None:
    with suppress(psutil.Error):
        found: str | None = process.environ().get(MARK)
        return found
    return None
