"""Runs a description: its method and those that it wants beside it, one after another, on the same seed and data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.local import LocalRun
from launch.progress import Progress
from pflsim.errors import DescriptionError
from pflsim.record.plot import save_accuracy_plot
from pflsim.record.result import Result
from pflsim.spec import Algorithm, Description, validate


def run_all(tables: Mapping[str, Any], directory: Path, *, quiet: bool = False) -> list[Result]:
    """Run everything that `tables` describe; the results, those of the description's own method last.

    They lie in `directory`, those of the methods beside it in `directory`-NAME. Raises DescriptionError before
    anything starts, RunFailed when a run fails, KeyboardInterrupt when it is interrupted.
    """
    description = validate(tables)
    runs = [
        (description.model_copy(update={"algorithm": beside, "beside": ()}), _beside(directory, beside.name))
        for beside in description.beside
    ]
    runs.append((description.model_copy(update={"beside": ()}), directory))
    for _, place in runs:
        if place.exists():
            raise DescriptionError("--out", str(place), "exists already; name a folder that does not")
    if len({place for _, place in runs}) < len(runs):
        names = [beside.name for beside in description.beside]
        raise DescriptionError("beside", names, "names a method twice; a second variant needs a run of its own")
    results = [
        _run(one, place, quiet, [later.algorithm for later, _ in runs[position + 1 :]])
        for position, (one, place) in enumerate(runs)
    ]
    if description.record.plot:
        curves = {str(result.summary["algorithm"]): result.record for result in results}
        save_accuracy_plot(curves, directory / "accuracy")
    return results


def _run(description: Description, directory: Path, quiet: bool, later: Sequence[Algorithm]) -> Result:
    run = description.run
    name = description.algorithm.name
    rounds = min(run.rounds, run.stop.rounds or run.rounds)
    progress = Progress(rounds, run.clients, name=name, quiet=quiet)
    result = LocalRun(description, directory, progress, later).run()
    from launch.finished import save_trace  # here, as what reads records imports numpy, and nothing before needs it
    from launch.verify import with_violations

    result = with_violations(result)
    if description.record.trace:
        save_trace(directory)
    return result


def _beside(directory: Path, name: str) -> Path:
    return directory.with_name(f"{directory.name}-{name.split(':')[-1].lower()}")
