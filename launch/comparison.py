"""Runs a description: its method and those that it wants beside it, one after another, on the same seed and data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from launch.directory import taken
from launch.ending import in_words
from launch.lan import LanRun
from launch.lobby import Lan, Lobby
from launch.local import LocalRun
from launch.progress import Progress
from launch.resumed import run_to_the_end
from pflsim.errors import DescriptionError
from pflsim.record.plot import save_accuracy_plot
from pflsim.record.result import Result
from pflsim.spec import Algorithm, Description, validate


def run_all(
    tables: Mapping[str, Any], directory: Path | None = None, *, quiet: bool = False, lan: Lan | None = None
) -> list[Result]:
    """Run everything that `tables` describe; the results, those of the description's own method last.

    Over several machines where `lan` says how.

    They lie in `directory` (None: in a new one under results/), those of the methods beside it in `directory`-NAME.
    Raises DescriptionError before anything starts, RunFailed when a run fails, KeyboardInterrupt when it is
    interrupted; notes of these say where the records lie.
    """
    description = validate(tables)
    methods = [*description.beside, description.algorithm]
    names = [_suffix(beside) for beside in description.beside]
    if len(set(names)) < len(names):
        named = [beside.name for beside in description.beside]
        raise DescriptionError("beside", named, "names a method twice; a second variant needs a run of its own")
    results: list[Result] = []
    with _folders(directory, description.run.name, names) as folders, _told_with_what_is_done(results):
        for position, (method, folder) in enumerate(zip(methods, folders, strict=True)):
            one = description.model_copy(update={"algorithm": method, "beside": ()})
            results.append(_run(one, folder, quiet, methods[position + 1 :], lan))
        with in_words():
            draw(description, results, folders[-1])
    return results


@contextmanager
def _folders(directory: Path | None, name: str, beside: Sequence[str]) -> Iterator[list[Path]]:
    """The folders of all runs, made now so that nobody else takes them; in the end those without a run are removed."""
    folders: list[Path] = []
    try:
        own = taken(directory, name)
        folders.append(own)
        for suffix in beside:
            folders.insert(-1, taken(own.with_name(f"{own.name}-{suffix}"), name))
        yield folders
    finally:
        for folder in folders:
            with suppress(OSError):  # it is not empty, or gone already
                folder.rmdir()


@contextmanager
def _told_with_what_is_done(results: Sequence[Result]) -> Iterator[None]:
    try:
        yield
    except BaseException as problem:
        for result in results:
            problem.add_note(f"results of {result.summary['algorithm']}, which was done: {result.directory}")
        raise


def _run(description: Description, directory: Path, quiet: bool, later: Sequence[Algorithm], lan: Lan | None) -> Result:
    run = description.run
    name = description.algorithm.title
    rounds = min(run.rounds, run.stop.rounds or run.rounds)
    progress = Progress(rounds, run.clients, name=name, quiet=quiet)
    if lan is None:
        result = run_to_the_end(LocalRun(description, directory, progress, later))
    else:
        with Lobby(lan) as lobby:
            result = run_to_the_end(LanRun(description, directory, progress, lobby, later))
    return completed(result, description)


def completed(result: Result, description: Description) -> Result:
    """The result of a run that has just ended, with what is looked for and made in the end."""
    from launch.finished import save_trace  # here, as what reads records imports numpy, and nothing before needs it
    from launch.verify import with_violations

    result = with_violations(result)
    if description.record.trace:
        save_trace(result.directory)
    return result


def draw(description: Description, results: Sequence[Result], folder: Path) -> None:
    """The pictures that the description wants of runs that are done."""
    if description.record.plot:
        curves = {str(result.summary["algorithm"]): result.record for result in results}
        save_accuracy_plot(curves, folder / "accuracy", _title(results[-1].summary))
    if description.record.report:
        from launch.report import write_report

        write_report(folder)


def _title(summary: Mapping[str, Any]) -> str:
    seeds = sorted(set(summary["seed"].values()))
    seed = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return f"{summary['model']} on {summary['dataset']}, {summary['clients']} clients, {seed}"


def _suffix(method: Algorithm) -> str:
    return method.name.split(":")[-1].lower()
