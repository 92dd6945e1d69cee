"""`pflsim resume`: a run whose processes, or machine, were lost goes on from its last checkpoint that is whole."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launch.checkpoints import Checkpoint, Checkpoints, code_of, described
from launch.comparison import completed, draw
from launch.ending import in_words
from launch.finished import DONE, FinishedRun
from launch.local import LocalRun
from launch.progress import Progress
from pflsim.errors import DescriptionError
from pflsim.record.database import Reader, Record
from pflsim.record.result import Result
from pflsim.spec import Description


class ResumedRun(LocalRun):
    """The rest of a run, from a checkpoint on."""

    def __init__(self, description: Description, directory: Path, progress: Progress, checkpoint: Checkpoint) -> None:
        super().__init__(description, directory, progress)
        self._from = checkpoint
        self._started_s = time.monotonic() - checkpoint.wall_s

    def _take_folder(self) -> None:
        self._logs.mkdir(exist_ok=True)

    def _record(self) -> Record:
        """The record as it was when all stood."""
        record = Record(self.directory / "record.db", resume=True)
        record.forget_after(self._from.rows)
        return record

    def _keep_plan(self) -> None:
        """It is written down already; what ran then must be what runs now."""
        then, now = self._from.run.get("versions", {}), self._plan["effective"]["versions"]
        for name, version in then.items():
            if now.get(name) != version:
                expected = f"must be {version}, with which this run began: other versions may give other bits"
                raise DescriptionError(f"the version of {name}", now.get(name), expected)
        with Reader(self.directory / "record.db") as reader:
            self._recorder.remember(reader)
            self._progress.update(_seen(reader))

    def _common(self, hub: str) -> dict[str, Any]:
        return super()._common(hub) | {"resumed": self._from.round}


def resume(directory: Path, *, quiet: bool = False) -> Result:
    """Bring the run in `directory` to its end; one that is done is only opened.

    Raises DescriptionError when it goes on right now, has no checkpoint, or is not what it was, and what runs raise.
    """
    run = FinishedRun(directory)
    with run.reader:
        ended = run.ended
    asked = run.description.run
    rounds = min(asked.rounds, asked.stop.rounds or asked.rounds)
    if ended == DONE and (directory / "summary.json").exists():
        Progress(rounds, asked.clients, quiet=quiet).say(f"{directory} is done already: there is nothing to resume")
        return Result.open(directory)
    checkpoints = Checkpoints(directory)
    if not checkpoints.folder.is_dir():
        raise _nothing(directory)
    with checkpoints.hold():
        progress = Progress(rounds, asked.clients, name=run.description.algorithm.title, quiet=quiet)
        found = checkpoints.last(progress.say)
        if found is None:
            raise _nothing(directory)
        _require_the_same(directory, found)
        (directory / "summary.json").unlink(missing_ok=True)  # it tells how the run ended before
        progress.say(f"resuming after round {found.round}")
        result = completed(ResumedRun(run.description, directory, progress, found).run(), run.description)
        with in_words():
            draw(run.description, [result], directory)
    return result


def _nothing(directory: Path) -> DescriptionError:
    again = f"run it again: pflsim run {directory / 'run.toml'}; run.checkpoint_every = 10 keeps one every ten rounds"
    return DescriptionError("DIR", str(directory), f"has no checkpoint to go on from; {again}")


def _require_the_same(directory: Path, checkpoint: Checkpoint) -> None:
    """The description and the code must be those with which the run began."""
    for key, then, value in _differences(checkpoint.run, described(directory)):
        raise DescriptionError(key, value, f"was {then!r} when this run began; put {directory / 'run.toml'} back")
    code = code_of(directory)
    if code != checkpoint.code:
        expected = f"must be {checkpoint.code}, the code with which this run began: other code may give other bits"
        raise DescriptionError("the code of pflsim", code, expected)


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in sorted({*then, *now}):
        one, other = then.get(key), now.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differences(one, other, f"{at}{key}.")
        elif one != other:
            yield f"{at}{key}", one, other


def _seen(reader: Reader) -> Iterator[tuple[Any, ...]]:
    """What the display has to know of what was before."""
    for table in ("events", "rounds", "sent", "received"):
        only = " WHERE channel = 'data'" if table in ("sent", "received") else ""
        for row in reader.query(f"SELECT * FROM {table}{only}"):
            yield (table, *row)
