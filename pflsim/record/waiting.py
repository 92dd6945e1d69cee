"""Who was waited for: by a server in its rounds, and by peers in their steps.

A peer's step consists of what it does and of gaps, in which it waits. A gap is charged to the neighbour whose message
ended it; under the virtual clock, in which a peer goes on at the very moment at which that arrives, a gap that no
message ended was ended by the deadline, and nobody is charged with it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pflsim.record.critical_path import DEADLINE, CriticalPath, Part, chain, clipped
from pflsim.record.database import Reader
from pflsim.record.history import WAIT, History, Period, Transit
from pflsim.timing.links import Links


@dataclass(frozen=True)
class WaitedFor:
    """The client that the others waited for most."""

    actor: str
    waited_s: (
        float  # simulated; how much later than the median answer it was, summed over the rounds (peers: see above)
    )
    rounds_closed: int  # in which no answer arrived after its own (of peers: the waits that it ended)
    others_as_late: int  # other clients that were waited for at least 99 % as long


class Wait(NamedTuple):
    """How long `peer` waited in one of its rounds for `neighbour` (empty: until its deadline)."""

    peer: str
    neighbour: str
    round: int
    waited_ns: int


def most_waited_for(reader: Reader) -> WaitedFor | None:
    """The client that cost the others most simulated time, by the answers that arrived within their round.

    An answer is charged with the time by which it arrived after the round's median answer (the earlier of the
    two in the middle; the round's start, if it is alone), so that equally slow clients are charged alike. The
    largest sum wins, of those that are as large to 1 % the lowest id. None if that is less than 1 % of the time that
    the rounds took.
    """
    select = (
        "SELECT m.round, m.sender, m.arrival_ns, r.start_ns "
        "FROM messages m JOIN rounds r ON r.round = m.round "
        "WHERE m.receiver = 'server' AND m.kind IN ('RESULT', 'GONE') AND m.arrival_ns BETWEEN r.start_ns AND r.end_ns "
        "ORDER BY m.round, m.arrival_ns, m.sender"
    )
    rounds: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    starts_ns: dict[int, int] = {}
    for round_, sender, arrival_ns, start_ns in reader.query(select):
        rounds[round_].append((arrival_ns, sender))
        starts_ns[round_] = start_ns
    late_ns: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    for round_, arrivals in rounds.items():
        median_ns = arrivals[(len(arrivals) - 1) // 2][0] if len(arrivals) > 1 else starts_ns[round_]
        last_ns = arrivals[-1][0]
        for arrival_ns, sender in arrivals:
            late_ns[sender] += max(0, arrival_ns - median_ns)
            closed[sender] += arrival_ns == last_ns
    (took_ns,) = reader.query("SELECT COALESCE(SUM(end_ns - start_ns), 0) FROM rounds")[0]
    return _most(late_ns, closed, took_ns)


def most_waited_for_by_peers(history: History, is_virtual: bool = True) -> WaitedFor | None:
    """The peer for which its neighbours waited longest, of equals the lowest id.

    None if that is less than 1 % of the time that all steps of all peers took, or if the record has no spans.
    """
    waited_ns: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for wait in waits(history, is_virtual):
        if wait.neighbour:
            waited_ns[wait.neighbour] += wait.waited_ns
            ended[wait.neighbour] += 1
    took_ns = sum(step.end_ns - step.start_ns for own in history.steps.values() for step in own)
    return _most(waited_ns, ended, took_ns)


def waits(history: History, is_virtual: bool = True) -> list[Wait]:
    """Every wait of every peer, by peer; without spans nobody can tell computing from waiting, so there are none."""
    if not history.spans:
        return []
    found = []
    for peer, steps in history.steps.items():
        for step in steps:
            for since_ns, until_ns in reversed(list(_gaps(history, peer, step))):
                came = _ended_by(history, peer, since_ns, until_ns, is_virtual)
                found.append(Wait(peer, came.sender if came else "", step.round, until_ns - since_ns))
    return found


def step_path(
    history: History, peer: str, step: Period, links: Links | None = None, is_virtual: bool = True
) -> CriticalPath:
    """What a step's time went into: what the peer did, and for each gap the chain of events that it waited for.

    The chain goes back through the neighbour that ended the wait, and through those for which that one waited, but
    not to before the wait began. The parts follow each other and add up to the step's duration to the nanosecond.
    """
    parts: list[Part] = []
    at_ns = step.end_ns
    for since_ns, until_ns in [*_gaps(history, peer, step), (step.start_ns, step.start_ns)]:
        while at_ns > until_ns and (work := history.work_before(peer, at_ns)) is not None:
            parts.append(Part(peer, work.what, work.start_ns, at_ns))
            at_ns = work.start_ns
        if until_ns > since_ns:
            if _ended_by(history, peer, since_ns, until_ns, is_virtual) is None:
                parts.append(Part(peer, DEADLINE if is_virtual else WAIT, since_ns, until_ns))
            else:
                parts += reversed(clipped(reversed(chain(history, peer, since_ns, until_ns, links)), since_ns))
            at_ns = since_ns
    return CriticalPath(step, tuple(clipped(reversed(parts), step.start_ns)), peer)


def step_paths(history: History, links: Links | None = None, is_virtual: bool = True) -> list[CriticalPath]:
    """Those of all steps of all peers, by peer."""
    return [
        step_path(history, peer, step, links, is_virtual) for peer, steps in history.steps.items() for step in steps
    ]


def _gaps(history: History, peer: str, step: Period) -> Iterator[tuple[int, int]]:
    """When the peer did nothing in its step, last first."""
    at_ns = step.end_ns
    while at_ns > step.start_ns:
        work = history.work_before(peer, at_ns)
        if work is not None and work.end_ns == at_ns:
            at_ns = work.start_ns
            continue
        since_ns = max(step.start_ns, work.end_ns if work else 0)
        yield since_ns, at_ns
        at_ns = since_ns


def _ended_by(history: History, peer: str, since_ns: int, until_ns: int, is_virtual: bool) -> Transit | None:
    """The message that ended a wait, if one did; the wall clock goes on a little until the peer does."""
    came = history.taken_before(peer, until_ns)
    if came is None or came.arrival_ns <= since_ns:
        return None
    return came if came.arrival_ns == until_ns or not is_virtual else None


def _most(waited_ns: Counter[str], ended: Counter[str], took_ns: int) -> WaitedFor | None:
    if not any(100 * own_ns > took_ns for own_ns in waited_ns.values()):
        return None
    most_ns = max(waited_ns.values())
    actor, *others = sorted(one for one, own_ns in waited_ns.items() if 100 * own_ns >= 99 * most_ns)
    return WaitedFor(actor, waited_ns[actor] / 1e9, ended[actor], len(others))
