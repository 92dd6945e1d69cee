"""`pflsim sweep`: makes every run that a sweep needs and that its cache does not have, side by side."""

import math
import os
from collections import deque
from collections.abc import Callable, Sequence

import psutil

from launch.check import memory_bytes
from launch.interrupts import uninterrupted
from launch.sweep.cache import Cache
from launch.sweep.display import Display, Pace, eta, total_s
from launch.sweep.plan import Plan, Planned
from launch.sweep.pool import Ended, Job, Pool
from launch.sweep.reading import DONE, Outcome
from pflsim.errors import DescriptionError
from pflsim.study import Study
from pflsim.sweep import Cell, told_at

_SHARE_OF_MEMORY = 0.8
_MANY = 20
"""From so many descriptions on, checking them takes long enough to be told."""


class Sweeping:
    """The work of one call: the runs of some cells of a sweep, whose plan knows what came of them."""

    def __init__(self, plan: Plan, cache: Cache, cells: Sequence[Cell], most: int | None, display: Display) -> None:
        """At most so many runs at a time; by default as many as there are cores."""
        self._plan, self._cache, self._cells, self._display = plan, cache, cells, display
        self._most = most or cores()
        self._pace = Pace()
        self._memory: dict[tuple[str, str], int] = {}
        self._waiting: deque[Planned] = deque()
        self._taken: set[str] = set()
        self._done = 0

    def survey(self) -> None:
        """Build the study of every run that is to be made, but for its seed: its memory is estimated, too.

        Raises DescriptionError, with the name of the cell, for what the data or the method refuse.
        """
        tried = [{repr(run.settings): run for run in reversed(self._plan.missing(cell))} for cell in self._cells]
        count = sum(map(len, tried))
        if count > _MANY:
            self._display.say(f"checking {count} descriptions with their data")
        for cell, runs in zip(self._cells, tried, strict=True):
            for run in runs.values():
                try:
                    needed_bytes = memory_bytes(run.description, Study(run.description, b"sweep"))
                except DescriptionError as problem:
                    raise told_at(*cell.at, problem, run.settings) from problem
                self._memory[cell.at] = max(needed_bytes, self._memory.get(cell.at, 0))

    def run(self, on_ended: Callable[[], None]) -> None:
        """Make all runs; `on_ended` is called after each. Raises KeyboardInterrupt, when nothing is left running."""
        self._plan_on()
        if not self._waiting:
            return
        pool = Pool(self._cache, self._most, int(psutil.virtual_memory().available * _SHARE_OF_MEMORY))
        try:
            while self._waiting or pool.running:
                while self._waiting and pool.has_room(job := self._job(self._waiting[0])):
                    self._waiting.popleft()
                    if self._plan.outcome(job.run) is None:  # another sweep with this cache may have made it
                        pool.start(job)
                    else:
                        self._plan_on()
                self._show(pool)
                for ended in pool.ended():
                    self._take(ended, pool)
                    on_ended()
        finally:
            with uninterrupted():
                pool.end_all()

    def _plan_on(self) -> None:
        """Put what cells need next in the queue; what finishes a cell goes before the trials of others."""
        for cell in self._cells:
            new = [run for run in self._plan.missing(cell) if run.key not in self._taken]
            fresh = {run.key: run for run in new}  # cells may share a run
            self._taken |= fresh.keys()
            if any(run.purpose == "reported" for run in new) and self._done:
                self._waiting.extendleft(reversed(fresh.values()))
            else:
                self._waiting.extend(fresh.values())

    def _job(self, run: Planned) -> Job:
        at_least = max(self._memory.values(), default=0)
        return Job(run, self._memory.get(run.cell.at, at_least))

    def _take(self, ended: Ended, pool: Pool) -> None:
        run = ended.job.run
        self._done += 1
        self._pace.learn(*run.cell.at, ended.wall_s)
        if ended.status != DONE:
            self._plan.failed[run.key] = Outcome(ended.status, ended.reason)
        self._plan_on()
        outcome = self._plan.outcome(run)
        assert outcome is not None
        value = outcome.measured(self._plan.sweep.file.sweep.measure)
        how = outcome.status if value is None else f"{100 * value:.2f} %"
        told = f"{' on validation' if run.purpose == 'trial' and value is not None else ''} in {ended.wall_s:.0f} s"
        why = f": {outcome.reason}" if outcome.reason else ""
        left = self._plan.remaining(self._cells)
        counted = f"[{self._done}/{self._done + left}]"
        self._display.say(f"{counted} {run.label}: {how}{told}{why}{eta(self._remaining_s(pool))}")

    def _remaining_s(self, pool: Pool) -> float:
        """As long as runs of the same cells took, and those that nobody has planned yet like those of their column."""
        running = [max(0.0, self._pace.expected_s(*job.run.cell.at) - gone_s) for job, gone_s in pool.elapsed_s()]
        waiting = [self._pace.expected_s(*run.cell.at) for run in self._waiting]
        unknown = [
            self._pace.expected_s(*cell.at)
            for cell in self._cells
            if self._plan.reported(cell) is None
            for _ in self._plan.sweep.seeds
        ]
        every = [*running, *waiting, *unknown]
        return total_s(every, self._most) if every else math.nan

    def _show(self, pool: Pool) -> None:
        if not self._display.is_due():
            return
        labels = [f"{job.run.label}, {gone_s:.0f} s" for job, gone_s in pool.elapsed_s()]
        left = self._plan.remaining(self._cells)
        self._display.running(labels, self._done, self._done + left, self._remaining_s(pool))


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
