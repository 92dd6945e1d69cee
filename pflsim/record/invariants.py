"""What must hold in the record of every run: checked at its end, and by `pflsim verify DIR`.

Each invariant is a function from the facts to one sentence per violation. None of them knows how a run computes its
times; they ask whether what was recorded can be.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pflsim.record.classes import ages
from pflsim.record.database import Reader
from pflsim.record.history import SERVER, WAIT, History
from pflsim.record.ledger import Amount, balance
from pflsim.record.link_use import overruns
from pflsim.record.peer_invariants import (
    no_age_is_negative,
    no_model_passes_the_coordinator,
    pairs_are_answered_once,
    steps_follow_each_other,
    work_lasts_from_step_to_model,
)
from pflsim.timing.links import Links


@dataclass(frozen=True)
class Facts:
    """What the invariants are about."""

    reader: Reader
    history: History
    links: Links
    is_virtual: bool = True
    """Under the wall clock what an actor does between two events takes real time, of which the model knows nothing."""
    is_whole: bool = True
    """Whether the run is done, so that everybody has told everything."""

    @classmethod
    def read(cls, reader: Reader, links: Links, is_virtual: bool = True) -> "Facts":
        """Those of a record."""
        return cls(reader, History.read(reader), links, is_virtual)


@dataclass(frozen=True)
class Check:
    """What came of one invariant."""

    name: str
    violations: tuple[str, ...] = ()
    not_checked: str = ""
    """Why it could not be checked; empty if it was."""

    @property
    def holds(self) -> bool:
        """Whether nothing that was checked speaks against it."""
        return not self.violations


Invariant = Callable[[Facts], Iterator[str]]


def _time_goes_forward(facts: Facts) -> Iterator[str]:
    if not facts.history.has_peers:  # whose rounds overlap: each has its own steps
        for one, following in pairwise(facts.history.rounds):
            if following.start_ns < one.end_ns:
                yield f"round {following.round} starts at {following.start_ns} ns, before round {one.round} has ended"
    yield from steps_follow_each_other(facts.history)
    for period in facts.history.rounds:
        if period.end_ns < period.start_ns:
            yield f"round {period.round} ends before it starts"
    spans = "SELECT actor, what, start_ns, end_ns FROM spans ORDER BY actor, rowid"  # as the actor told them
    before: tuple[str, int] = ("", 0)
    for actor, what, start_ns, end_ns in facts.reader.query(spans):
        if end_ns < start_ns or start_ns < 0 or (actor == before[0] and start_ns < before[1]):
            yield f"{what} of {actor} from {start_ns} to {end_ns} ns comes after what ended at {before[1]} ns"
        before = actor, end_ns
    sent = "SELECT sender, sequence, departure_ns FROM sent WHERE channel = 'data' ORDER BY sender, sequence"
    for (actor, _, at_ns), (same, sequence, next_ns) in pairwise(facts.reader.query(sent)):
        if actor == same and next_ns < at_ns:
            yield f"message {sequence} of {actor} left at {next_ns} ns, before the one that was sent before it"


def _messages_take_time(facts: Facts) -> Iterator[str]:
    for one in facts.history.transits():
        if one.arrival_ns <= one.departure_ns:
            what = f"{one.kind} {one.sequence} of {one.sender}"
            yield f"{what} left at {one.departure_ns} ns and came at {one.arrival_ns} ns"


def _work_lasts_from_work_to_answer(facts: Facts) -> Iterator[str]:
    """A client begins when its WORK has come in, does one thing after another, and answers when the last is done."""
    history = facts.history
    for actor in history.spans:
        if actor == SERVER:
            continue
        begins = {one.arrival_ns for one in history.taken.get(actor, [])}
        ends: set[int] = set()
        for span in history.spans[actor]:
            if span.what != WAIT and span.start_ns not in begins and span.start_ns not in ends:
                yield f"{span.what} of {actor} begins at {span.start_ns} ns, when nothing reached it or was done"
            ends.add(span.end_ns)
        for kind, sequence, departure_ns in facts.reader.query(_ANSWERS_OF, actor):
            if departure_ns not in ends and departure_ns not in begins:
                yield f"{kind} {sequence} of {actor} left at {departure_ns} ns, when no work of it was done"


_ANSWERS_OF = (
    "SELECT kind, sequence, departure_ns FROM sent WHERE sender = ? AND kind IN ('RESULT', 'GONE', 'LOSS') "
    "AND header_bytes > 0"
)
"""What was cancelled before it left has no bytes."""


def _one_thing_at_a_time(facts: Facts) -> Iterator[str]:
    for actor, spans in facts.history.spans.items():
        busy = sorted((span.start_ns, span.end_ns, span.what) for span in spans if span.what != WAIT)
        for (_, end_ns, what), (start_ns, _, other) in pairwise(busy):
            if start_ns < end_ns:
                yield f"{other} of {actor} begins at {start_ns} ns, while its {what} lasts until {end_ns} ns"


def _links_carry_no_more_than_they_can(facts: Facts) -> Iterator[str]:
    yield from overruns(facts.history, facts.links)


def _no_answer_is_younger_than_its_work(facts: Facts) -> Iterator[str]:
    for actor, own in ages(facts.reader).items():
        for age in own:
            if age < 0:
                yield f"an answer of {actor} has the age {age}"


def _sent_is_received_or_lost(facts: Facts) -> Iterator[str]:
    ledger = balance(facts.reader)
    yield from ledger.disagreements
    for account in ledger.accounts:
        if not account.agrees:
            what = f"{account.kind} {account.sender} → {account.receiver}"
            lost = ", ".join(f"{_in_words(amount)} {reason}" for reason, amount in account.lost.items()) or "nothing"
            yield f"{what}: sent {_in_words(account.sent)}, received {_in_words(account.received)}, lost {lost}"


def _work_is_answered_at_most_once(facts: Facts) -> Iterator[str]:
    """Of one client: its k-th answer leaves after its k-th WORK has come in, and none is left over."""
    asked: defaultdict[str, list[int]] = defaultdict(list)
    answered: defaultdict[str, list[int]] = defaultdict(list)
    for one in facts.history.transits():  # what was cut off or lost on the way has answered nothing
        if one.kind in ("WORK", "PROBE"):
            asked[one.receiver].append(one.arrival_ns)
        elif one.kind in ("RESULT", "GONE", "LOSS"):
            answered[one.sender].append(one.departure_ns)
    for actor, departures_ns in answered.items():
        arrivals_ns = sorted(asked[actor])
        if len(departures_ns) > len(arrivals_ns):
            yield f"{actor} answered {len(departures_ns)} times and was asked {len(arrivals_ns)} times"
        for number, (asked_ns, answer_ns) in enumerate(zip(arrivals_ns, sorted(departures_ns), strict=False), start=1):
            if answer_ns < asked_ns:
                yield f"answer {number} of {actor} left at {answer_ns} ns, before WORK {number} came at {asked_ns} ns"


_EVERYWHERE: dict[str, Invariant] = {
    "time never runs backwards": _time_goes_forward,
    "every message takes at least 1 ns": _messages_take_time,
    "an actor does one thing at a time": _one_thing_at_a_time,
    "no link carries more than its rate": _links_carry_no_more_than_they_can,
    "sent = received + lost": _sent_is_received_or_lost,
}

INVARIANTS: dict[str, Invariant] = _EVERYWHERE | {
    "completion = dispatch + duration": _work_lasts_from_work_to_answer,
    "staleness is never negative": _no_answer_is_younger_than_its_work,
    "every WORK is answered at most once": _work_is_answered_at_most_once,
}
"""What must hold where there is a server."""

AMONG_PEERS: dict[str, Invariant] = _EVERYWHERE | {
    "work begins with its step, and its model leaves when it is done": (
        lambda facts: work_lasts_from_step_to_model(facts.history, facts.reader)
    ),
    "staleness is never negative": lambda facts: no_age_is_negative(facts.reader),
    "every PAIR is answered once": lambda facts: pairs_are_answered_once(facts.history, facts.reader),
    "no model passes the coordinator": lambda facts: no_model_passes_the_coordinator(facts.reader),
}
"""What must hold where there is none."""

_NEEDS_VIRTUAL_TIME = (
    "completion = dispatch + duration",
    "work begins with its step, and its model leaves when it is done",
)
_NEEDS_SPANS = (*_NEEDS_VIRTUAL_TIME, "an actor does one thing at a time")
_NEEDS_ALL = ("completion = dispatch + duration", "sent = received + lost", "every PAIR is answered once")


def checks(facts: Facts) -> list[Check]:
    """Every invariant, checked."""
    invariants = AMONG_PEERS if facts.history.has_peers else INVARIANTS
    return [_checked(name, violations, facts) for name, violations in invariants.items()]


def _checked(name: str, violations: Invariant, facts: Facts) -> Check:
    if name in _NEEDS_SPANS and not facts.history.spans:
        return Check(name, not_checked="the record has no spans")
    if name in _NEEDS_ALL and not facts.is_whole:
        return Check(name, not_checked="the run is not done, and not all has been told of it, or somebody was lost")
    if name in _NEEDS_VIRTUAL_TIME and not facts.is_virtual:
        return Check(name, not_checked="under the wall clock what is between two events takes real time")
    return Check(name, tuple(violations(facts)))


def _in_words(amount: Amount) -> str:
    return f"{amount.messages} messages of {amount.total_bytes} bytes"
