"""The rest of a run, from a checkpoint on; by itself, where the description wants that (`run.on_loss = "restart"`)."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from launch.checkpoints import Checkpoint
from launch.lan import LanRun
from launch.lobby import Lobby
from launch.local import LocalRun
from launch.progress import Progress
from pflsim.errors import DescriptionError, RunFailed
from pflsim.record.database import Reader, Record
from pflsim.record.result import Result
from pflsim.spec import Description


class ResumedRun(LocalRun):
    """The rest of a run, from a checkpoint on."""

    def __init__(
        self,
        description: Description,
        directory: Path,
        progress: Progress,
        checkpoint: Checkpoint,
        why: str = "",
        **where: Any,
    ) -> None:
        """`why` says what had befallen the run, if it goes on by itself."""
        super().__init__(description, directory, progress, **where)
        self.since, self._why = checkpoint, why
        self._started_s = time.monotonic() - checkpoint.wall_s

    def _take_folder(self) -> None:
        self._logs.mkdir(exist_ok=True)

    def _record(self) -> Record:
        self._open_record = Record(self.directory / "record.db", resume=True)
        return self._open_record

    def _keep_plan(self) -> None:
        """It is written down already; what ran then must be what runs now. Nothing is changed before that is sure."""
        then, now = self.since.run.get("versions", {}), self._plan["effective"]["versions"]
        for name, version in then.items():
            if now.get(name) != version:
                self._plan = {}  # nothing is going to run, so nothing is told of it
                expected = f"must be {version}, with which this run began: other versions may give other bits"
                raise DescriptionError(f"the version of {name}", now.get(name), expected)
        self.checkpoints.go_back_to(self.since, self._open_record)
        (self.directory / "summary.json").unlink(missing_ok=True)  # it tells how the run ended before
        with Reader(self.directory / "record.db") as reader:
            self._recorder.remember(reader)
            self.progress.go_on_from(_seen(reader))
        if self._why:
            self._recorder.note("launcher", "restarted", f"after round {self.since.round}: {self._why}")

    def _common(self, hub: str) -> dict[str, Any]:
        return super()._common(hub) | {"resumed": self.since.round}


class ResumedLanRun(ResumedRun, LanRun):
    """The same over several machines; who runs which clients is decided anew."""

    def _gather(self) -> None:
        super()._gather()
        self._hand_over(self.since)


def rest_of(
    description: Description,
    directory: Path,
    progress: Progress,
    checkpoint: Checkpoint,
    lobby: Lobby | None,
    why: str = "",
) -> ResumedRun:
    """The rest of a run, over several machines if there is a `lobby` for them."""
    if lobby is None:
        return ResumedRun(description, directory, progress, checkpoint, why)
    return ResumedLanRun(description, directory, progress, checkpoint, why, lobby=lobby)


def run_to_the_end(run: LocalRun) -> Result:
    """What `run` comes to, also after it has lost somebody, if it is to go on then. Raises what runs raise."""
    try:
        return run.run()
    except RunFailed as problem:
        if run.description.run.on_loss != "restart":
            raise
        failure = problem
    with nullcontext() if isinstance(run, ResumedRun) else run.checkpoints.hold():
        while True:
            run = _going_back(run, failure)
            try:
                return run.run()
            except RunFailed as problem:
                failure = problem


def _going_back(run: LocalRun, failure: RunFailed) -> ResumedRun:
    """Raises `failure` if the run has come to no checkpoint since it began, or went on: it would fail there again."""
    progress = run.progress.again()
    last = run.checkpoints.last(progress.say)
    if last is None or (isinstance(run, ResumedRun) and last.round <= run.since.round):
        raise failure
    why = str(failure).splitlines()[0]
    progress.say(f"{why}; going on after round {last.round}")
    lobby = run.lobby if isinstance(run, LanRun) else None
    return rest_of(run.description, run.directory, progress, last, lobby, why)


def _seen(reader: Reader) -> Iterator[tuple[Any, ...]]:
    """What the display has to know of what was before."""
    for table in ("events", "rounds", "evaluations", "sent", "received"):
        only = " WHERE channel = 'data'" if table in ("sent", "received") else ""
        for row in reader.query(f"SELECT * FROM {table}{only}"):
            yield (table, *row)
