"""What a round's time went into: the chain of events without which it would have ended earlier.

The chain is followed backwards from the end of the round. The server went on because an answer had arrived, which had
left its client when the client's work was done, which had begun when the WORK had come in, which the server had sent
at the start of the round, or when it had taken an earlier answer. The parts of the chain follow each other without a
gap, so that they add up to the round's simulated duration to the nanosecond.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pflsim.record.durations import duration
from pflsim.record.history import SERVER, WAIT, History, Period, Transit
from pflsim.timing.links import Links, wire_bytes

DEADLINE = "deadline"
LATENCY = "latency"


class Part(NamedTuple):
    """A stretch of the chain: what the round waited for then, and for which client (or the server) that was."""

    actor: str
    what: str
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """How long it was."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class CriticalPath:
    """The chain of one round, or of one peer's step, from its start to its end."""

    period: Period
    parts: tuple[Part, ...]
    owner: str = SERVER
    """Whose round it is."""

    @property
    def duration_ns(self) -> int:
        """How long the round took, which is what the parts add up to."""
        return self.period.end_ns - self.period.start_ns

    def by_actor(self) -> dict[str, dict[str, int]]:
        """The ns of each kind of part, by actor: who was waited for last comes first, each with its longest first."""
        sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for part in reversed(self.parts):
            sums[part.actor][part.what] += part.duration_ns
        return {actor: dict(counted.most_common()) for actor, counted in sums.items()}

    def __str__(self) -> str:
        sums = self.by_actor()
        own = sums.pop(self.owner, {})
        least_ns = self.duration_ns / 1000  # what is less is in the sums, and not worth a word
        said = [f"waited {_told(whats, actor, least_ns)}" for actor, whats in sums.items()][:_MOST_CLIENTS]
        if len(sums) > _MOST_CLIENTS:
            rest_ns = sum(sum(whats.values()) for whats in list(sums.values())[_MOST_CLIENTS:])
            whom = "clients" if self.owner == SERVER else "peers"
            said.append(f"before that {duration(rest_ns)} for {len(sums) - _MOST_CLIENTS} other {whom}")
        words = _SERVERS if self.owner == SERVER else _CLIENTS
        said += [f"{duration(own_ns)} {words.get(what, what)}" for what, own_ns in own.items()]
        of = f"round {self.period.round}" if self.owner == SERVER else f"step {self.period.round} of {self.owner}"
        return f"{of} took {duration(self.duration_ns)}: {'; '.join(said)}"


def critical_path(history: History, period: Period, schedule: str = "sync", links: Links | None = None) -> CriticalPath:
    """The chain of the round `period`; with `links` each transfer is parted into what made it take its time."""
    parts = chain(history, SERVER, period.start_ns, period.end_ns, links)
    if schedule == "deadline":
        for index, part in enumerate(parts):
            if part.actor != SERVER:
                break
            if part.what == WAIT:  # nothing that came ended it
                parts[index:] = [Part(SERVER, DEADLINE, period.start_ns, part.end_ns)]
                break
    return CriticalPath(period, tuple(clipped(reversed(parts), period.start_ns)))


def chain(history: History, owner: str, start_ns: int, at_ns: int, links: Links | None) -> list[Part]:
    """What `owner` waited for to go on at `at_ns`, followed backwards, last first; it may begin before `start_ns`."""
    parts: list[Part] = []
    actor = owner
    while at_ns > start_ns:
        came = history.taken_before(actor, at_ns)
        work = history.work_before(actor, at_ns)
        last_ns = max(
            [one_ns for one_ns in (came and came.arrival_ns, work and work.end_ns) if one_ns is not None],
            default=start_ns,
        )
        if last_ns < at_ns:
            parts.append(Part(actor, WAIT, max(last_ns, start_ns), at_ns))
        elif work is not None and work.end_ns == at_ns:
            parts.append(Part(actor, work.what, work.start_ns, at_ns))
        elif came is not None:
            parts += reversed(_transfer(came, owner, links))
            actor = came.sender
        at_ns = parts[-1].start_ns
    return parts


def critical_paths(history: History, schedule: str = "sync", links: Links | None = None) -> list[CriticalPath]:
    """The chains of all rounds."""
    return [critical_path(history, period, schedule, links) for period in history.rounds]


class Blame(NamedTuple):
    """How much of the rounds' time went into one actor."""

    actor: str
    total_ns: int
    rounds: int
    """How many rounds it was the last to be waited for."""


def blamed(paths: Iterable[CriticalPath]) -> list[Blame]:
    """Whom the rounds waited for on their critical paths, the longest first; what a peer itself did is no waiting."""
    total_ns: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    for path in paths:
        sums = path.by_actor()
        if path.owner != SERVER:
            sums.pop(path.owner, None)
        for actor, whats in sums.items():
            total_ns[actor] += sum(whats.values())
        closed.update([actor for actor in sums if actor != SERVER][:1])
    order = sorted(total_ns, key=lambda actor: (-total_ns[actor], actor))
    return [Blame(actor, total_ns[actor], closed[actor]) for actor in order]


_MOST_CLIENTS = 3

_SERVERS = {WAIT: "waiting at the server", DEADLINE: "until the deadline", "aggregate": "aggregating"}

_CLIENTS = {
    "compute": "computing",
    "evaluate": "finding its loss",
    "mix": "mixing",
    DEADLINE: "until its deadline",
    WAIT: "between two events",
    "lost work": "in work that was lost",
    "lost send": "in an upload that was lost",
}


def _told(whats: dict[str, int], actor: str, least_ns: float) -> str:
    told = [f"{duration(own_ns)} {_CLIENTS.get(what, what)}" for what, own_ns in whats.items() if own_ns >= least_ns]
    return f"{duration(sum(whats.values()))} for {actor}{': ' if told else ''}{', '.join(told)}"


def clipped(parts: Iterable[Part], start_ns: int) -> list[Part]:
    """The parts, or what of them comes after `start_ns`."""
    clipped = (part._replace(start_ns=max(start_ns, part.start_ns)) for part in parts)
    return [part for part in clipped if part.duration_ns > 0]


def _transfer(came: Transit, owner: str, links: Links | None) -> list[Part]:
    """A transfer: its latency, what its own bytes need on the slower link, and the rest, in which others' travel."""
    whom = came.receiver if came.sender == owner else came.sender
    if links is None:
        what = "on the way to it" if came.sender == owner else "on the way from it"
        return [Part(whom, what, came.departure_ns, came.arrival_ns)]
    up, down = links.uplink_rate(came.sender), links.downlink_rate(came.receiver)
    size_bytes = wire_bytes([came.header_bytes, came.payload_bytes])
    latency_ns = (
        links.latency_ns(came.sender, came.receiver)
        + links.slow_start_ns(came.sender, came.receiver, size_bytes)
        + links.extra_latency_ns(came.sender, came.receiver, came.sequence)
    )
    own_ns = 0 if min(up, down) == math.inf else math.ceil(size_bytes / min(up, down))
    slower = came.sender if up <= down else came.receiver
    whose = "its" if slower == whom else "the server's" if slower == SERVER else f"{slower}'s"
    line = f"on {whose} {'uplink' if up <= down else 'downlink'}"
    bounds = [came.departure_ns, came.departure_ns + latency_ns, came.departure_ns + latency_ns + own_ns]
    bounds = [min(bound_ns, came.arrival_ns) for bound_ns in bounds] + [came.arrival_ns]
    names = (LATENCY, line, _while_others_send(came))
    return [Part(whom, name, bounds[i], bounds[i + 1]) for i, name in enumerate(names) if bounds[i + 1] > bounds[i]]


def _while_others_send(came: Transit) -> str:
    if came.sender == SERVER:
        return "waiting for the server's uplink"
    return "sharing the server's downlink" if came.receiver == SERVER else "sharing links with other messages"
