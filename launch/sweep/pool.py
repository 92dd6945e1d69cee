"""Runs side by side: as many processes as there is room for, each one run, all of which end with this one."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.cli import DONE, WRONG
from launch.host import environment, how_it_ended
from launch.sweep.cache import Cache
from launch.sweep.plan import Planned

LONGEST_END_S = 10.0
POLL_S = 0.05


@dataclass(frozen=True)
class Job:
    """A run to be made."""

    run: Planned
    memory_bytes: int

    @property
    def key(self) -> str:
        """By which it is found again."""
        return self.run.key


@dataclass(frozen=True)
class Ended:
    """How a run ended: "done", "failed" or "refused", and why."""

    job: Job
    status: str
    reason: str
    wall_s: float


class Pool:
    """The runs that go on now, each of which writes into a folder of its own until it is done."""

    def __init__(self, cache: Cache, most: int, memory_bytes: int) -> None:
        """At most so many at a time, in so much memory together; a run that needs more of it runs alone."""
        self._cache, self._most, self._memory_bytes = cache, most, memory_bytes
        self._running: dict[subprocess.Popen[bytes], tuple[Job, float]] = {}
        cache.folder.mkdir(parents=True, exist_ok=True)
        self._forget_what_nobody_runs()

    @property
    def running(self) -> list[Job]:
        """What runs now, the longest first."""
        return [job for job, _ in self._running.values()]

    def elapsed_s(self) -> list[tuple[Job, float]]:
        """The same, each with how long it has run."""
        return [(job, time.monotonic() - began_s) for job, began_s in self._running.values()]

    def has_room(self, job: Job) -> bool:
        """Whether `job` may start beside what runs."""
        if not self._running:
            return True
        taken_bytes = sum(other.memory_bytes for other in self.running)
        alone = any(one.run.description.time.mode == "wall" for one in (job, *self.running))
        return not alone and len(self._running) < self._most and taken_bytes + job.memory_bytes <= self._memory_bytes

    def start(self, job: Job) -> None:
        """Start a run."""
        folder = self._cache.unfinished(job.key, os.getpid())
        order = {"tables": job.run.description.as_tables(), "directory": str(folder)}
        with self._log(job).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "launch.sweep.one_run", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,  # so that Ctrl-C is this process's to handle
            )
        self._running[process] = (job, time.monotonic())
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as told:  # of one that is gone at once, its end will tell
            told.write(json.dumps(order).encode())

    def ended(self) -> Iterator[Ended]:
        """The runs that have ended since the last call; waits a little."""
        time.sleep(POLL_S)
        for process, (job, began_s) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[process]
                yield self._taken_in(job, code, time.monotonic() - began_s)

    def end_all(self) -> None:
        """End everything that runs, within seconds, and remove what it had written."""
        for process in self._running:
            process.terminate()
        deadline_s = time.monotonic() + LONGEST_END_S
        for process, (job, _) in self._running.items():
            try:
                process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            shutil.rmtree(self._cache.unfinished(job.key, os.getpid()), ignore_errors=True)
            self._log(job).unlink(missing_ok=True)
        self._running.clear()

    def _taken_in(self, job: Job, code: int, wall_s: float) -> Ended:
        folder, log = self._cache.unfinished(job.key, os.getpid()), self._log(job)
        reason = _reason(log) or how_it_ended(code)
        if code == DONE:
            self._cache.keep(job.key, folder)
        elif folder.is_dir() and not self._cache.holds(job.key):
            self._cache.keep_failed(job.key, folder)
        log.unlink(missing_ok=True)
        status = {DONE: "done", WRONG: "refused"}.get(code, "failed")
        return Ended(job, status, reason if code != DONE else "", wall_s)

    def _log(self, job: Job) -> Path:
        return self._cache.folder / f"{job.key}.{os.getpid()}.log"

    def _forget_what_nobody_runs(self) -> None:
        """Remove what sweeps that were killed left."""
        for path in self._cache.folder.glob("*.*"):
            process = path.name.removesuffix(".log").rpartition(".")[2]
            if process.isdigit() and not _is_alive(int(process)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()


def _reason(log: Path) -> str:
    """Why a run could not go on, in the words that it left, and the last line of the log that it quotes."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    told = [line.removeprefix("pflsim: ").removeprefix("the run failed: ") for line in lines if line[0] != " "]
    quoted = [line.strip() for line in lines if line[0] == " "]
    return ": ".join(told[:1] + quoted[-1:])
