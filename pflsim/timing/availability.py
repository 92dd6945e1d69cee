"""Who is there when: for each client the stretches of simulated time in which it can work and be reached.

`availability` in a run description is "always" or a table with a kind:

    availability = { kind = "bernoulli", probability = 0.8, period_s = 600 }
    availability = { kind = "markov", on_s = 3600, off_s = 1200 }
    availability = { kind = "diurnal", duty = 0.3, duty_spread = 0.1 }
    availability = { kind = "trace", file = "phones.csv", repeat_s = 604800 }

Everything is a function of the client and the time, and of the seed: the answers do not depend on what was asked
before. Stretches are half open, [from, to) in whole nanoseconds: a client that leaves at t is not there at t, and work
that ends at t is done. The server is always there.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pflsim.catalogue import near_match, validated
from pflsim.errors import DescriptionError
from pflsim.rng import stream
from pflsim.timing.calendars import Calendar, Renewals, Timeline
from pflsim.timing.clock import LAST_NS, NANOSECONDS
from pflsim.timing.traces import SERVER, Row, read_rows, ways_to_write

MOST_S = 1e9  # thirty years


def _always(clients: Sequence[str], seed: int) -> list[Timeline]:
    """Everybody is there all the time."""
    return [Calendar([(0, LAST_NS)], None)] * len(clients)


def _bernoulli(clients: Sequence[str], seed: int, *, probability: float, period_s: float) -> list[Timeline]:
    """In each period of `period_s` a client is there with this probability, each client and period by itself.

    So it stays for a number of periods that is geometric, and is away for one that is, and that is how it is drawn.
    """
    if not 0 < probability <= 1:
        raise DescriptionError("availability.probability", probability, "must be above 0 and at most 1")
    period_ns = _nanoseconds("availability.period_s", period_s)
    if probability == 1:
        return _always(clients, seed)

    def lengths(rng: np.random.Generator, on: bool, count: int) -> list[int]:
        periods: list[int] = rng.geometric(1 - probability if on else probability, count).tolist()
        return [number * period_ns for number in periods]

    return [Renewals(probability, lengths, _draws(seed, client)) for client in clients]


def _markov(clients: Sequence[str], seed: int, *, on_s: float, off_s: float) -> list[Timeline]:
    """A client is there for an exponential time of mean `on_s`, then away for one of mean `off_s`, and so on.

    It starts as it would be found after a long while: there with the probability on_s / (on_s + off_s).
    """
    means = {
        True: _nanoseconds("availability.on_s", on_s),
        False: _nanoseconds("availability.off_s", off_s),
    }

    def lengths(rng: np.random.Generator, on: bool, count: int) -> list[int]:
        drawn: list[float] = rng.standard_exponential(count).tolist()
        return [max(1, round(number * means[on])) for number in drawn]

    return [Renewals(on_s / (on_s + off_s), lengths, _draws(seed, client)) for client in clients]


def _diurnal(
    clients: Sequence[str],
    seed: int,
    *,
    duty: float,  # which share of the day a client is there
    duty_spread: float = 0.0,  # a client's own share is uniform in duty - duty_spread .. duty + duty_spread
    phase_spread: float = 1.0,  # when its stretch begins: uniform over this share of the day; 0: all at its start
    period_s: float = 86400.0,  # how long a day is
) -> list[Timeline]:
    """A client is there once a day, for its share of the day, as when it charges at night; days are all alike."""
    if not (duty_spread >= 0 and duty - duty_spread > 0 and duty + duty_spread <= 1):
        raise DescriptionError("availability.duty", duty, "must, with its spread, be above 0 and at most 1")
    if not 0 <= phase_spread <= 1:
        raise DescriptionError("availability.phase_spread", phase_spread, "must be from 0 to 1")
    day_ns = _nanoseconds("availability.period_s", period_s)
    timelines: list[Timeline] = []
    for client in clients:
        rng = stream(seed, "availability", client)
        length_ns = max(1, round((duty + duty_spread * (2 * rng.random() - 1)) * day_ns))
        start_ns = int(phase_spread * rng.random() * day_ns) % day_ns
        over_ns = max(0, start_ns + length_ns - day_ns)  # what reaches into the next day
        timelines.append(Calendar([(0, over_ns), (start_ns, min(start_ns + length_ns, day_ns))], day_ns))
    return timelines


def _trace(clients: Sequence[str], seed: int, *, file: str, repeat_s: float | None = None) -> list[Timeline]:
    """A CSV file with the columns client (a name or a number), from_s and to_s; after `repeat_s` it starts again."""
    repeat_ns = None if repeat_s is None else _nanoseconds("availability.repeat_s", repeat_s)
    stretches: dict[str, list[tuple[int, int]]] = {client: [] for client in clients}
    lines: dict[tuple[str, int], int] = {}
    written = ways_to_write(clients)
    for row in read_rows("availability.file", file, ["client", "from_s", "to_s"]):
        client = written.get(row.values["client"])
        if client is None:
            continue  # a trace may have more clients than the run
        stretch = _stretch(row, repeat_ns)
        stretches[client].append(stretch)
        if lines.setdefault((client, stretch[0]), row.line) != row.line:
            raise row.wrong(f"{client} is there from then on already, by line {lines[client, stretch[0]]}")
    for client, found in stretches.items():
        found.sort()
        if not found:
            raise DescriptionError("availability.file", file, f"has no row for {client}: it would never be there")
        for (_, to_ns), (from_ns, _) in pairwise(found):
            if from_ns < to_ns:
                line = lines[client, from_ns]
                raise DescriptionError("availability.file", file, f"line {line}: {client} is there already then")
    return [Calendar(stretches[client], repeat_ns) for client in clients]


KINDS: dict[str, Callable[..., list[Timeline]]] = {
    "always": _always,
    "bernoulli": _bernoulli,
    "diurnal": _diurnal,
    "markov": _markov,
    "trace": _trace,
}


class Availability:
    """When each of `actors` is there; "server", if it is among them, always is.

    Raises DescriptionError for a `setting` that is neither "always" nor a table as above. Asking for an actor that
    is not there raises KeyError.
    """

    def __init__(self, setting: object, actors: Sequence[str], seed: int) -> None:
        self.settings = resolved(setting)
        clients = [actor for actor in actors if actor != SERVER]
        kind = KINDS[self.settings["kind"]]
        given = {name: value for name, value in self.settings.items() if name != "kind"}
        timelines = kind(clients, seed, **validated(kind, given, "availability"))
        self._timelines = dict(zip(clients, timelines, strict=True)) | {SERVER: _always([SERVER], seed)[0]}

    @property
    def is_always(self) -> bool:
        """Whether it is known that nobody ever leaves."""
        return bool(self.settings["kind"] == "always")

    def is_available(self, client: str, at_ns: int) -> bool:
        """Whether `client` is there at `at_ns`."""
        return self._timelines[client].stretch(at_ns)[0]

    def next_change_ns(self, client: str, at_ns: int) -> int | None:
        """When, after `at_ns`, `client` first leaves or comes back; None if it never does."""
        until_ns = self._timelines[client].stretch(at_ns)[1]
        return None if until_ns >= LAST_NS else until_ns

    def available_from_ns(self, client: str, at_ns: int) -> int | None:
        """`at_ns` if `client` is there then, else when it comes back; None if it never does."""
        return at_ns if self.is_available(client, at_ns) else self.next_change_ns(client, at_ns)


def resolved(setting: object) -> dict[str, Any]:
    """The table that `setting` stands for, its kind checked; raises DescriptionError."""
    if setting == "always":
        return {"kind": "always"}
    if not isinstance(setting, Mapping):
        raise DescriptionError("availability", setting, 'must be "always", or a table')
    if "kind" not in setting:
        raise DescriptionError("availability.kind", None, "is required")
    if not isinstance(setting["kind"], str) or setting["kind"] not in KINDS:
        expected = near_match(str(setting["kind"]), sorted(KINDS))
        raise DescriptionError("availability.kind", setting["kind"], expected)
    return dict(setting)


def _draws(seed: int, client: str) -> Callable[[int], np.random.Generator]:
    return lambda block: stream(seed, "availability", client, block)


def _nanoseconds(key: str, given_s: float) -> int:
    if not 1e-6 <= given_s <= MOST_S:
        raise DescriptionError(key, given_s, f"must be from 1e-06 to {MOST_S:g} s")
    return round(given_s * NANOSECONDS)


def _stretch(row: Row, repeat_ns: int | None) -> tuple[int, int]:
    from_ns = round(row.number("from_s") * NANOSECONDS)
    to_ns = round(row.number("to_s", row.number("from_s"), above=True) * NANOSECONDS)
    if to_ns > (repeat_ns or LAST_NS):
        raise row.wrong(f"to_s = {row.values['to_s']} is after the end, {(repeat_ns or LAST_NS) / NANOSECONDS:g} s")
    return from_ns, max(to_ns, from_ns + 1)
