"""`pflsim explain` for a run without a server: how each peer spent its time, for whom it waited, and why."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from launch.finished import FinishedRun
from launch.show import Screen
from launch.tables import MOST_ACTORS, graph_in_words, some_of, table
from pflsim.errors import DescriptionError
from pflsim.record.classes import by_class
from pflsim.record.consensus import Staleness, consensus_over_rounds, last_consensus, staleness_per_edge
from pflsim.record.critical_path import CriticalPath, blamed
from pflsim.record.durations import duration
from pflsim.record.history import History
from pflsim.record.report import three_digits
from pflsim.record.shares import Shares, shares
from pflsim.record.waiting import Wait, waits

SLOWEST = 3


def explain_peers(run: FinishedRun, console: Screen, number: int | None) -> None:
    """Print where the time of peers went: in the slowest step of one round, or in the run."""
    paths = run.paths()
    if number is not None:
        _one_round(run, [path for path in paths if path.period.round == number], console, number)
        return
    if run.topology is not None:
        console.print(f"graph: {graph_in_words(run.topology.facts())}", markup=False)
    for line in _slowest(run.history, paths):
        console.print(line, markup=False)
    waited = waits(run.history, run.is_virtual)
    for shown in (
        _share_table(shares(run.history, run.away), run.classes(), waited),
        _waited_for_table(waited, paths),
        _class_table(run),
        _age_table(staleness_per_edge(run.reader)),
    ):
        if shown.row_count:
            console.print()
            console.print(shown)
    console.print()
    for line in _consensus(run):
        console.print(line, markup=False)


def _one_round(run: FinishedRun, paths: Sequence[CriticalPath], console: Screen, number: int) -> None:
    """The slowest step of a round, with all of its parts."""
    if not paths:
        most = max((len(own) for own in run.history.steps.values()), default=0)
        raise DescriptionError("--round", number, f"the record has steps of the rounds 1 to {most}")
    path = _by_duration(paths)[0]
    console.print(f"{len(paths)} peers did round {number}; the slowest:", markup=False)
    console.print(str(path), markup=False)
    for part in path.parts:
        since_ns = part.start_ns - path.period.start_ns
        said = f"  {duration(since_ns):>8} + {duration(part.duration_ns):>8}  {part.actor}  {part.what}"
        console.print(said, markup=False)


def _by_duration(paths: Iterable[CriticalPath]) -> list[CriticalPath]:
    return sorted(paths, key=lambda path: (-path.duration_ns, path.period.round, path.owner))


def _slowest(history: History, paths: Sequence[CriticalPath]) -> Iterator[str]:
    if not paths:
        yield "no step has ended yet"
        return
    done = [len(own) for own in history.steps.values()]
    each = f"{min(done)}" if min(done) == max(done) else f"{min(done)} to {max(done)}"
    yield f"{len(done)} peers did {each} steps each in {duration(history.end_ns)}; the slowest steps:"
    for path in _by_duration(paths)[:SLOWEST]:
        yield f"  {path}"


def _share_table(found: Sequence[Shares], classes: Mapping[str, str], waited: Sequence[Wait]) -> Table:
    for_whom: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for wait in waited:
        for_whom[wait.peer][wait.neighbour or "its deadlines"] += wait.waited_ns
    columns = ("peer", "class", "computing", "sending", "offline", "waiting", "most for")
    shown = table("how they spent the time until their last step, %", *columns)
    shown.columns[-1].justify = "left"
    rows = sorted(found, key=lambda one: (-one.computing_ns / (sum(one[1:]) or 1), one.actor))
    for one in some_of(rows, shown, "peers, the {half} that computed most and least"):
        whole_ns = sum(one[1:]) or 1
        most = for_whom[one.actor].most_common(1)
        said = f"{most[0][0]}, {duration(most[0][1])}" if most else ""
        parts = (f"{100 * part_ns / whole_ns:.1f}" for part_ns in one[1:])
        shown.add_row(one.actor, escape(classes.get(one.actor, "")), *parts, said)
    return shown


def _waited_for_table(waited: Iterable[Wait], paths: Sequence[CriticalPath]) -> Table:
    """Whom neighbours waited for, and who caused it: a peer that itself waits for a slower one is no cause."""
    by_neighbours: Counter[str] = Counter()
    for wait in waited:
        by_neighbours[wait.neighbour] += wait.waited_ns
    caused = {one.actor: one.total_ns for one in blamed(paths)}
    whole_ns = sum(by_neighbours.values()) or 1
    by_neighbours.pop("", None)
    columns = ("peer", "by neighbours", "share", "by all, on chains", "share")
    shown = table("waited for", *columns)
    for actor, waited_ns in by_neighbours.most_common(MOST_ACTORS):
        own_ns = caused.get(actor, 0)
        shares_of = [f"{100 * one_ns / whole_ns:.1f} %" for one_ns in (waited_ns, own_ns)]
        shown.add_row(actor, duration(waited_ns), shares_of[0], duration(own_ns), shares_of[1])
    shown.caption_justify = "left"
    if len(by_neighbours) > MOST_ACTORS:
        shown.caption = f"the first {MOST_ACTORS} of {len(by_neighbours)}"
    return shown


def _class_table(run: FinishedRun) -> Table:
    classes, steps = run.classes(), run.history.steps
    shown = table("by speed class", "class", "peers", "steps each", "accuracy, %", "worst decile")
    for one in by_class(run.reader, classes):
        done = sum(len(steps.get(name, [])) for name, kind in classes.items() if kind == one.name)
        accuracy = [one.accuracy.weighted, one.accuracy.worst_decile] if one.accuracy else []
        percent = [f"{100 * value:.1f}" for value in accuracy] or ["–", "–"]
        shown.add_row(escape(one.name), str(one.clients), f"{done / one.clients:.2f}", *percent)
    return shown


def _age_table(found: Sequence[Staleness]) -> Table:
    """The edges whose models were oldest."""
    shown = table("how old the models were, s", "peer", "model of", "uses", "mean", "oldest")
    order = sorted(found, key=lambda one: (-one.mean_age_s, one.peer, one.neighbour))
    for one in order[:MOST_ACTORS]:
        ages = (three_digits(age_s) for age_s in (one.mean_age_s, one.largest_age_s))
        shown.add_row(one.peer, one.neighbour, str(one.uses), *ages)
    shown.caption_justify = "left"
    if len(order) > MOST_ACTORS:
        uses = sum(one.uses for one in order)
        mean_s = sum(one.mean_age_s * one.uses for one in order) / uses
        shown.caption = f"of {len(order)} edges, mean {three_digits(mean_s)} s"
    return shown


def _consensus(run: FinishedRun) -> Iterator[str]:
    rounds, last = consensus_over_rounds(run.reader), last_consensus(run.reader)
    if last is None:
        return
    about = "exactly" if last.is_exact else f"to about {100 * last.relative_error:.0f} %"
    course = [f"{distance:.3g} after round {round}" for round, distance in _some(rounds)]
    yield f"consensus distance: {', '.join([*course, f'{last.distance:.3g} at the end ({about})'])}"


def _some(rounds: Sequence[tuple[int, float]], most: int = 4) -> list[tuple[int, float]]:
    """The first and the last of all, and some between them at equal distances."""
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[round(index * (len(rounds) - 1) / (most - 1))] for index in range(most)]
