"""Accuracy over clients, and over rounds, from the evaluations of a record.

One evaluation is what one client's model got right on that client's own split. Clients without a sample there
are left out of every number and counted. Everything is summed in ascending client id.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pflsim.record.database import Reader
from pflsim.record.durations import duration
from pflsim.record.history import is_among_peers


@dataclass(frozen=True)
class Accuracy:
    """One model's accuracy over clients, as fractions of 1; nan throughout when nobody has a sample."""

    weighted: float  # sum of correct / sum of total
    binomial_error: float  # standard error of `weighted` if samples were independent: sqrt(p (1 - p) / total)
    mean: float  # plain mean over clients
    std: float  # over clients, of the population (divided by n)
    worst_decile: float  # mean of the worst tenth of clients, one at least
    best_decile: float
    loss: float  # mean over samples
    clients: int
    clients_without_samples: int


def over_clients(evaluations: Iterable[tuple[int, int, float | None]]) -> Accuracy:
    """The accuracy over clients from each client's (correct, total, mean loss)."""
    everybody = list(evaluations)
    counted = [(correct, total, loss) for correct, total, loss in everybody if total > 0]
    without = len(everybody) - len(counted)
    if not counted:
        return Accuracy(*(math.nan,) * 7, clients=0, clients_without_samples=without)
    samples = sum(total for _, total, _ in counted)
    weighted = sum(correct for correct, _, _ in counted) / samples
    each = sorted(correct / total for correct, total, _ in counted)
    mean = math.fsum(each) / len(each)
    tenth = max(1, len(each) // 10)
    return Accuracy(
        weighted=weighted,
        binomial_error=math.sqrt(weighted * (1 - weighted) / samples),
        mean=mean,
        std=math.sqrt(math.fsum((one - mean) ** 2 for one in each) / len(each)),
        worst_decile=math.fsum(each[:tenth]) / tenth,
        best_decile=math.fsum(each[-tenth:]) / tenth,
        loss=math.fsum(total * (math.nan if loss is None else loss) for _, total, loss in counted) / samples,
        clients=len(counted),
        clients_without_samples=without,
    )


GRADIENTS = "gradients"
"""The measure in which a client tells how many samples it has passed backward in a visit."""


@dataclass(frozen=True)
class Point:
    """The accuracy after a round, with what it had cost by then."""

    round: int
    simulated_s: float
    payload_bytes: int  # of the method's messages sent so far, in all directions
    accuracy: Accuracy
    gradients: int = 0  # samples that clients have passed backward in visits up to this round


def headline(reader: Reader) -> str | None:
    """The model that a method evaluates first, in the last evaluation on test; None if there was none."""
    select = "SELECT model FROM evaluations WHERE split = 'test' ORDER BY round DESC, client, rowid LIMIT 1"
    found = reader.query(select)
    return str(found[0][0]) if found else None


def models(reader: Reader) -> list[str]:
    """The models that were ever evaluated on test, sorted."""
    found = reader.query("SELECT DISTINCT model FROM evaluations WHERE split = 'test' ORDER BY model")
    return [name for (name,) in found]


def latest(reader: Reader, model: str, split: str = "test") -> Accuracy:
    """A model's accuracy by the last evaluation of each client; peers may have stopped after different rounds.

    Without clients that were lost on the way: the result is that of those who were there to the end.
    """
    select = (
        "SELECT client, correct, total, loss FROM evaluations WHERE model = ? AND split = ? "
        "ORDER BY round, client, rowid"
    )
    lost = {name for (name,) in reader.query("SELECT actor FROM events WHERE what = 'lost'")}
    gone = {client for client, name in reader.query("SELECT client, name FROM clients") if name in lost} if lost else ()
    last = {client: scores for client, *scores in reader.query(select, model, split) if client not in gone}
    return over_clients((correct, total, loss) for _, (correct, total, loss) in sorted(last.items()))


def over_rounds(reader: Reader, model: str | None = None, split: str = "test") -> list[Point]:
    """The course of a model's accuracy (by default the headline model's), one point per evaluated round.

    Peers have rounds of their own: there, each point is a moment, see `_among_peers`.
    """
    model = headline(reader) if model is None else model
    if is_among_peers(reader):
        return _among_peers(reader, model, split)
    select = "SELECT round, now_ns, correct, total, loss FROM evaluations WHERE model = ? AND split = ? ORDER BY client"
    by_round: defaultdict[int, list[tuple[int, int, float | None]]] = defaultdict(list)
    time_ns: defaultdict[int, int] = defaultdict(int)
    for round_, now_ns, correct, total, loss in reader.query(select, model, split):
        by_round[round_].append((correct, total, loss))
        time_ns[round_] = max(time_ns[round_], now_ns)
    rounds = sorted(by_round)
    spent_bytes = _payload_bytes_before(reader, [time_ns[round_] for round_ in rounds])
    return [
        Point(round_, time_ns[round_] / 1e9, spent, over_clients(by_round[round_]), gradients)
        for round_, spent, gradients in zip(rounds, spent_bytes, _gradients_by(reader, rounds), strict=True)
    ]


def _among_peers(reader: Reader, model: str | None, split: str) -> list[Point]:
    """The accuracy of every peer's last evaluation by a moment, whenever as many were made as there are peers.

    The first moment is when the last peer was evaluated for the first time, so that nobody is left out; the last one
    is that of the last evaluation. `round` is the mean over peers of the rounds that are evaluated, rounded down.
    """
    select = (
        "SELECT now_ns, client, round, correct, total, loss FROM evaluations WHERE model = ? AND split = ? "
        "ORDER BY now_ns, client, rowid"
    )
    found = reader.query(select, model, split)
    everybody = len({client for _, client, *_ in found})
    cost = _gradients_of_peers(reader)
    latest_of: dict[int, tuple[int, int, int, float | None]] = {}
    moments: list[tuple[int, dict[int, tuple[int, int, int, float | None]]]] = []
    fresh = 0
    for position, (now_ns, client, round_, correct, total, loss) in enumerate(found):
        latest_of[client], fresh = (round_, correct, total, loss), fresh + 1
        is_last = position + 1 == len(found)
        if not is_last and (found[position + 1][0] == now_ns or fresh < everybody):
            continue
        if len(latest_of) == everybody:
            moments.append((now_ns, dict(latest_of)))
            fresh = 0
    spent_bytes = _payload_bytes_before(reader, [now_ns for now_ns, _ in moments])
    points = []
    for (now_ns, scores_of), spent in zip(moments, spent_bytes, strict=True):
        accuracy = over_clients(scores_of[client][1:] for client in sorted(scores_of))
        mean_round = sum(scores[0] for scores in scores_of.values()) // everybody
        gradients = sum(cost(client, scores[0]) for client, scores in scores_of.items())
        points.append(Point(mean_round, now_ns / 1e9, spent, accuracy, gradients))
    return points


def _gradients_of_peers(reader: Reader) -> Callable[[int, int], int]:
    """What tells the gradients of a peer, by its number, up to one of its rounds."""
    told: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for actor, round_, count in reader.query(
        "SELECT actor, round, value FROM measures WHERE name = ? ORDER BY round", GRADIENTS
    ):
        told[int(actor[1:])].append((round_, count))
    return lambda client, until: sum(count for round_, count in told[client] if round_ <= until)


def _gradients_by(reader: Reader, rounds: Sequence[int]) -> list[int]:
    """The gradients of all visits up to each of these rounds, which ascend."""
    told = reader.query("SELECT round, SUM(value) FROM measures WHERE name = ? GROUP BY round", GRADIENTS)
    return [sum(count for of_round, count in told if of_round <= round_) for round_ in rounds]


def _payload_bytes_before(reader: Reader, times_ns: list[int]) -> list[int]:
    """The payload that departed before each of these times, which ascend.

    What departs at the very moment is the next round's: an evaluation takes no simulated time.
    """
    select = (
        "SELECT departure_ns, SUM(payload_bytes) FROM sent WHERE channel = 'data' "
        "GROUP BY departure_ns ORDER BY departure_ns"
    )
    departures = iter(reader.query(select))
    following = next(departures, None)
    spent, answers = 0, []
    for time_ns in times_ns:
        while following is not None and following[0] < time_ns:
            spent += following[1]
            following = next(departures, None)
        answers.append(spent)
    return answers


HOLDS = 3
"""A target is reached when so many evaluations one after another are at it or above."""


@dataclass(frozen=True)
class TimeToTarget:
    """When a run first reached a target and stayed there, or after how long without that it ended."""

    target: float
    reached_s: float | None
    """Simulated seconds to the first of the evaluations that hold; None if it was never reached."""
    budget_s: float
    """To the last evaluation: what a run that never got there was given."""

    @property
    def is_censored(self) -> bool:
        """Whether the target was not reached in the time that there was."""
        return self.reached_s is None

    def __str__(self) -> str:
        after_s = self.budget_s if self.reached_s is None else self.reached_s
        return f"{'> ' if self.reached_s is None else ''}{duration(round(after_s * 1e9))}"


def point_at_target(points: Sequence[Point], target: float, holds: int = HOLDS) -> Point | None:
    """The first point whose weighted accuracy is at `target` or above, as are those of `holds` evaluations in a row.

    None where there is none. A crossing so late that fewer evaluations follow it does not count: nobody saw it hold.
    """
    above = [point.accuracy.weighted >= target for point in points]
    return next((points[index] for index in range(len(points) - holds + 1) if all(above[index : index + holds])), None)


def time_to_target(points: Sequence[Point], target: float, holds: int = HOLDS) -> TimeToTarget:
    """When the weighted accuracy was first at `target` for good, see `point_at_target`."""
    budget_s = max((point.simulated_s for point in points), default=0.0)
    found = point_at_target(points, target, holds)
    return TimeToTarget(target, found.simulated_s if found else None, budget_s)
