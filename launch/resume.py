"""`pflsim resume`: a run whose processes, or machine, were lost goes on from its last checkpoint that is whole."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from launch.checkpoints import Checkpoint, Checkpoints, code_of, described
from launch.comparison import completed, draw
from launch.ending import in_words
from launch.finished import DONE, FinishedRun
from launch.lobby import Lan, Lobby
from launch.progress import Progress
from launch.resumed import rest_of, run_to_the_end
from pflsim.errors import DescriptionError
from pflsim.record.result import Result


def resume(directory: Path, *, quiet: bool = False, lan: Lan | None = None) -> Result:
    """Bring the run in `directory` to its end, over several machines where `lan` says how; one that is done is opened.

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
        progress.say(f"resuming after round {found.round}")
        with nullcontext() if lan is None else Lobby(lan) as lobby:
            going_on = rest_of(run.description, directory, progress, found, lobby)
            result = completed(run_to_the_end(going_on), run.description)
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
