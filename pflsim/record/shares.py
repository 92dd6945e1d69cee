"""How each actor spent the run: computing, sending, offline, or waiting."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pflsim.record.history import WAIT, History

Interval = tuple[int, int]

_AWAY = ("offline", "idle")


class Shares(NamedTuple):
    """Simulated ns of one actor; they add up to the run's, or to those until a peer's last step ended."""

    actor: str
    computing_ns: int  # also aggregating, mixing, and work that was lost
    sending_ns: int  # something of it is under way, and it does not compute
    offline_ns: int  # away; a server: idle, as nobody was there
    waiting_ns: int


def shares(history: History, absences: Mapping[str, Sequence[Interval]] | None = None) -> list[Shares]:
    """Every actor's shares of the time from the run's start to the end of its last round (of a peer: its own last).

    `absences` are when an actor was away by its description; without them, only while work waited for it.
    """
    sendings, absences = _sendings(history), absences or {}
    return [_shares(actor, history, sendings.get(actor, []), absences.get(actor, ())) for actor in history.actors]


def _shares(actor: str, history: History, sending: list[Interval], absent: Sequence[Interval]) -> Shares:
    spans, end_ns = history.spans.get(actor, []), history.ends_ns(actor)
    away = [*absent, *((span.start_ns, span.end_ns) for span in spans if span.what in _AWAY)]
    computing = [(span.start_ns, span.end_ns) for span in spans if span.what not in (*_AWAY, WAIT)]
    computing_ns = covered_ns(computing, end_ns)
    with_away_ns = covered_ns([*computing, *away], end_ns)
    with_sending_ns = covered_ns([*computing, *away, *sending], end_ns)
    return Shares(
        actor,
        computing_ns,
        with_sending_ns - with_away_ns,
        with_away_ns - computing_ns,
        end_ns - with_sending_ns,
    )


def _sendings(history: History) -> dict[str, list[Interval]]:
    sendings: dict[str, list[Interval]] = {}
    for one in history.transits():
        sendings.setdefault(one.sender, []).append((one.departure_ns, one.arrival_ns))
    return sendings


def covered_ns(intervals: Iterable[Interval] | Sequence[Interval], end_ns: int) -> int:
    """How many ns before `end_ns` lie in at least one of the `intervals`."""
    total_ns, until_ns = 0, 0
    for start_ns, stop_ns in sorted(intervals):
        stop_ns = min(stop_ns, end_ns)
        total_ns += max(0, stop_ns - max(start_ns, until_ns))
        until_ns = max(until_ns, stop_ns)
    return total_ns
