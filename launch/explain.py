"""`pflsim explain`: what the time of a finished (or running) run went into, in words, from its record alone."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from launch.explain_peers import explain_peers
from launch.finished import FinishedRun
from launch.screen import fitted
from launch.show import Screen
from launch.tables import MOST_ACTORS, some_of, table
from pflsim.errors import DescriptionError, TooEarly
from pflsim.record.accuracy import over_rounds, time_to_target
from pflsim.record.classes import SpeedClass, age_histogram, by_class
from pflsim.record.critical_path import CriticalPath, blamed
from pflsim.record.durations import duration
from pflsim.record.history import SERVER
from pflsim.record.shares import Shares, shares

SLOWEST = 3
BAR = 40


def explain(directory: Path, number: int | None = None, target: float | None = None) -> None:
    """Print where the time went: of one round, or of the run."""
    if target is not None and not 0 < target <= 1:
        raise DescriptionError("--target", target, "must be above 0 and at most 1: a fraction, not per cent")
    run, console = FinishedRun(directory), Screen()
    if run.reservation:
        console.print(fitted(f"{run.reservation}; what is not known looks like waiting"), markup=False)
    if run.history.has_peers:
        explain_peers(run, console, number)
    else:
        _rounds(run, console, number)
    if target is not None:
        reached = time_to_target(over_rounds(run.reader), target)
        line = f"time to an accuracy of {target:g}, held for 3 evaluations: {reached}"
        console.print(fitted(line, 4, console.width), markup=False)


def _rounds(run: FinishedRun, console: Screen, number: int | None) -> None:
    paths = run.paths()
    if number is not None:
        found = [path for path in paths if path.period.round == number]
        if not paths:
            raise TooEarly(f"no round has ended yet in {run.directory}")
        if not found:
            raise DescriptionError("--round", number, f"the record has the rounds 1 to {len(paths)}")
        for line in _round(found[0]):
            console.print(fitted(line, 4, console.width), markup=False)
    else:
        _whole_run(run, paths, console)


def _whole_run(run: FinishedRun, paths: list[CriticalPath], console: Screen) -> None:
    for line in _slowest(paths):
        console.print(fitted(line, 4, console.width), markup=False)
    if not paths:
        return
    for shown in (
        _blame_table(paths),
        _share_table(shares(run.history, run.away), run.classes()),
        _class_table(by_class(run.reader, run.classes())),
    ):
        console.print()
        console.print(shown)
    for line in _staleness(age_histogram(run.reader)):
        console.print(line, markup=False)


def _round(path: CriticalPath) -> Iterator[str]:
    yield str(path)
    for part in path.parts:
        since_ns = part.start_ns - path.period.start_ns
        yield f"  {duration(since_ns):>8} + {duration(part.duration_ns):>8}  {part.actor}  {part.what}"


def _slowest(paths: list[CriticalPath]) -> Iterator[str]:
    if not paths:
        yield "no round has ended yet"
        return
    slowest = sorted(paths, key=lambda path: (-path.duration_ns, path.period.round))[:SLOWEST]
    yield f"{len(paths)} rounds took {duration(sum(path.duration_ns for path in paths))}; the slowest:"
    for path in slowest:
        yield f"  {path}"


def _blame_table(paths: list[CriticalPath]) -> Table:
    shown = table("waited for, on the rounds' critical paths", "actor", "time", "share", "rounds that it closed")
    whole_ns = sum(path.duration_ns for path in paths) or 1
    for one in blamed(paths)[:MOST_ACTORS]:
        share = f"{100 * one.total_ns / whole_ns:.1f} %"
        shown.add_row(one.actor, duration(one.total_ns), share, str(one.rounds) if one.actor != SERVER else "")
    return shown


def _share_table(found: list[Shares], classes: Mapping[str, str]) -> Table:
    """The server, then the clients: the busiest and the idlest where they are many."""
    shown = table("how they spent the time, %", "actor", "class", "computing", "sending", "offline", "waiting")
    server, clients = found[:1], sorted(found[1:], key=lambda one: (-one.computing_ns, one.actor))
    for one in [*server, *some_of(clients, shown, "that took part, the {half} that computed longest and shortest")]:
        whole_ns = sum(one[1:]) or 1
        kind = classes.get(one.actor, "")
        shown.add_row(one.actor, escape(kind), *(f"{100 * part_ns / whole_ns:.1f}" for part_ns in one[1:]))
    return shown


def _class_table(found: list[SpeedClass]) -> Table:
    columns = ("class", "clients", "visits each", "answers each", "accuracy, %", "worst decile", "mean age")
    shown = table("by speed class", *columns)
    for one in found:
        accuracy = one.accuracy
        shown.add_row(
            escape(one.name),
            str(one.clients),
            f"{one.visits / one.clients:.2f}",
            f"{one.answers / one.clients:.2f}",
            f"{100 * accuracy.weighted:.1f}" if accuracy else "–",
            f"{100 * accuracy.worst_decile:.1f}" if accuracy else "–",
            f"{one.mean_age:.2f}" if one.mean_age is not None else "–",
        )
    return shown


def _staleness(histogram: Mapping[int, int]) -> Iterator[str]:
    if not histogram:
        return
    yield "answers by age (versions of the server's model since their WORK was sent)"
    width, most = max(1, -(-(max(histogram) + 1) // 16)), 1
    binned: dict[int, int] = {}
    for age, count in histogram.items():
        binned[age // width] = binned.get(age // width, 0) + count
    most = max(binned.values())
    for index in range(max(binned) + 1):
        count = binned.get(index, 0)
        label = str(index) if width == 1 else f"{index * width}–{(index + 1) * width - 1}"
        yield f"  {label:>9}  {count:>6}  {'█' * round(BAR * count / most)}"
