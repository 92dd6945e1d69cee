"""Faults as data: what goes wrong in a run, when, and to whom, as its description says.

    [[fault]]
    kind = "crash"                # the clients are gone, and what they work on is lost
    clients = ["c003"]
    at_s = 30
    until_s = 90                  # when they are back; without it never
    keeps_state = true            # whether they come back with their private state

    [[fault]]
    kind = "partition"            # messages between the groups do not get through; "others" are all not named
    groups = [["server", "others"], ["c001", "c002"]]
    at_round = 5
    until_round = 7

    [[fault]]
    kind = "slow-link"            # messages from and to the clients take `factor` times as long to put out
    clients = ["c004"]
    factor = 10

    [[fault]]
    kind = "lose"                 # or "duplicate", or "reorder" with delay_s: each message with this probability
    probability = 0.01

A fault holds from `at_s` (or the round `at_round`, from 0) until before `until_s` (or `until_round`), by default from
the start and for ever. Simulated time decides what is dated in seconds, and the round that a message or a piece of work
belongs to what is dated in rounds; so a query takes both, and needs nothing else. Clients are written as names or as
numbers; without `clients` a fault is everybody's. What befalls a message is decided when it is sent, from the seed, its
sender, its receiver and its sequence number alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from pflsim.catalogue import near_match, validated
from pflsim.errors import DescriptionError
from pflsim.rng import stream
from pflsim.timing.clock import NANOSECONDS
from pflsim.timing.traces import SERVER, ways_to_write

OTHERS = "others"
MOST_S = 1e9
Name = str | int


class Span(NamedTuple):
    """When a fault holds: from `begins` until before `ends` (None: for ever), in ns or in rounds."""

    begins: int
    ends: int | None
    in_rounds: bool

    def holds(self, at_ns: int, round: int) -> bool:
        """Whether it holds for what happens at `at_ns` and belongs to `round`."""
        moment = round if self.in_rounds else at_ns
        return self.begins <= moment and (self.ends is None or moment < self.ends)


class Crash(NamedTuple):
    """A client is gone for a span of ns or rounds; with its private state, or without, it comes back."""

    span: Span
    keeps_state: bool


@dataclass(frozen=True)
class Fault:
    """One table of the description, checked."""

    kind: str
    number: int  # its place in the description
    span: Span
    clients: frozenset[str]  # empty for a partition
    groups: tuple[frozenset[str], ...] = ()
    factor: float = 1.0
    probability: float = 0.0
    delay_ns: int = 0
    keeps_state: bool = True

    def meets(self, sender: str, receiver: str, at_ns: int, round: int) -> bool:
        """Whether a message between the two that is sent then is concerned."""
        return self.span.holds(at_ns, round) and (sender in self.clients or receiver in self.clients)

    def parts(self, a: str, b: str) -> bool:
        """Whether, as a partition, it has the two in different groups."""
        sides = [index for actor in (a, b) for index, group in enumerate(self.groups) if actor in group]
        return len(sides) == 2 and sides[0] != sides[1]


class Faults:
    """The faults of a run with these `actors`, "server" and the clients in their order.

    Raises DescriptionError, naming `fault.NUMBER.setting`, for what cannot be. Asking changes nothing.
    """

    def __init__(self, tables: Sequence[Mapping[str, Any]], actors: Sequence[str], seed: int) -> None:
        self.faults = tuple(_counted(number, table, actors) for number, table in enumerate(tables))
        self._seed = seed
        self._of_kind = {kind: tuple(one for one in self.faults if one.kind == kind) for kind in KINDS}

    def __bool__(self) -> bool:
        return bool(self.faults)

    @property
    def in_rounds(self) -> bool:
        """Whether somebody is down, or apart from somebody else, in some rounds."""
        return any(fault.span.in_rounds and fault.kind in ("crash", "partition") for fault in self.faults)

    def can_lose(self, pairs: Sequence[tuple[str, str]], *, sent_when_cut: bool) -> Fault | None:
        """A fault for which a message between one of these pairs of actors may never arrive, if there is one.

        `sent_when_cut` says whether anybody sends across a partition in the rounds in which it holds.
        """
        for fault in self.faults:
            if fault.kind == "lose" and fault.probability:
                return fault
            if fault.span.in_rounds and not sent_when_cut:
                continue
            if fault.kind == "partition" and fault.span.ends is None and any(fault.parts(*pair) for pair in pairs):
                return fault
        return None

    @property
    def never_returns(self) -> Fault | None:
        """A crash whose clients may be at work when it begins, and never return; who is down from the start is not."""
        crashes = (fault for fault in self._of_kind["crash"] if not fault.span.in_rounds)
        return next((fault for fault in crashes if fault.span.begins and fault.span.ends is None), None)

    def crashes(self, client: str) -> tuple[Crash, ...]:
        """When `client` is gone, in the order of the description."""
        return tuple(Crash(f.span, f.keeps_state) for f in self._of_kind["crash"] if client in f.clients)

    def crash(self, client: str, at_ns: int, round: int) -> Crash | None:
        """The first crash in the description that holds for `client` then; None if it is up."""
        return next((crash for crash in self.crashes(client) if crash.span.holds(at_ns, round)), None)

    def is_cut(self, a: str, b: str, at_ns: int, round: int = 0) -> bool:
        """Whether a partition keeps apart `a` and `b`: they are in different groups of it."""
        return bool(self._cuts(a, b, at_ns, round))

    def passes_ns(self, a: str, b: str, at_ns: int, round: int = 0) -> int | None:
        """`at_ns` if no partition keeps apart `a` and `b` then, else when they can speak again; None if never."""
        while spans := self._cuts(a, b, at_ns, round):
            ends_ns = [span.ends for span in spans if span.ends is not None and not span.in_rounds]
            if len(ends_ns) < len(spans):
                return None
            at_ns = max(ends_ns)
        return at_ns

    def link_factor(self, a: str, b: str, at_ns: int, round: int = 0) -> float:
        """How many times slower than usual a message of `a` to `b` that is sent then is put out; 1 if it is not."""
        factor = 1.0
        for fault in self._of_kind["slow-link"]:
            if fault.meets(a, b, at_ns, round):
                factor *= fault.factor
        return factor

    def loses(self, sender: str, receiver: str, sequence: int, at_ns: int, round: int = 0) -> bool:
        """Whether message `sequence` of `sender` to `receiver`, sent then, never arrives."""
        return any(self._hits("lose", sender, receiver, sequence, at_ns, round))

    def duplicates(self, sender: str, receiver: str, sequence: int, at_ns: int, round: int = 0) -> bool:
        """Whether that message arrives twice."""
        return any(self._hits("duplicate", sender, receiver, sequence, at_ns, round))

    def held_back_ns(self, sender: str, receiver: str, sequence: int, at_ns: int, round: int = 0) -> int:
        """How much later than usual that message arrives, so that others overtake it; uniform up to `delay_s`."""
        hits = self._hits("reorder", sender, receiver, sequence, at_ns, round)
        return sum(1 + int(draw * fault.delay_ns) for fault, draw in hits)

    def _cuts(self, a: str, b: str, at_ns: int, round: int) -> list[Span]:
        """When the partitions hold that keep apart the two then."""
        return [f.span for f in self._of_kind["partition"] if f.span.holds(at_ns, round) and f.parts(a, b)]

    def _hits(
        self, kind: str, sender: str, receiver: str, sequence: int, at_ns: int, round: int
    ) -> Iterator[tuple[Fault, float]]:
        """The faults of this kind that strike the message, each with a number in [0, 1) for what it does."""
        for fault in self._of_kind[kind]:
            if fault.meets(sender, receiver, at_ns, round):
                rng = stream(self._seed, "fault", fault.number, sender, receiver, sequence)
                if rng.random() < fault.probability:
                    yield fault, rng.random()


# the description


@dataclass(frozen=True, kw_only=True)
class _Dates:
    at_s: float | None = None
    until_s: float | None = None
    at_round: int | None = None
    until_round: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Crash(_Dates):
    """The clients are gone, what they work on is lost, and they come back with their private state or without."""

    clients: list[Name]
    keeps_state: bool


@dataclass(frozen=True, kw_only=True)
class _Partition(_Dates):
    """Messages between the groups wait until it heals; one that never heals loses them."""

    groups: list[list[Name]]


@dataclass(frozen=True, kw_only=True)
class _SlowLink(_Dates):
    """Messages from and to the clients take `factor` times as long to put out."""

    factor: float
    clients: list[Name] | None = None


@dataclass(frozen=True, kw_only=True)
class _Struck(_Dates):
    probability: float
    clients: list[Name] | None = None


@dataclass(frozen=True, kw_only=True)
class _Lose(_Struck):
    """Each message is lost with this probability."""


@dataclass(frozen=True, kw_only=True)
class _Duplicate(_Struck):
    """Each message arrives twice with this probability, which changes nothing but the bytes."""


@dataclass(frozen=True, kw_only=True)
class _Reorder(_Struck):
    """Each message is held back with this probability, by up to `delay_s`, and those behind it with it."""

    delay_s: float


KINDS: dict[str, type[_Dates]] = {
    "crash": _Crash,
    "duplicate": _Duplicate,
    "lose": _Lose,
    "partition": _Partition,
    "reorder": _Reorder,
    "slow-link": _SlowLink,
}


def _counted(number: int, table: object, actors: Sequence[str]) -> Fault:
    """A fault; an error about it says how the tables are counted."""
    try:
        return _fault(number, table, actors)
    except DescriptionError as problem:
        expected = f"{problem.expected} (the first [[fault]] is fault.0)"
        raise DescriptionError(problem.key, problem.value, expected) from problem


def _fault(number: int, table: object, actors: Sequence[str]) -> Fault:
    key = f"fault.{number}"
    if not isinstance(table, Mapping):
        raise DescriptionError(key, table, "must be a table")
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        expected = "is required; " if kind is None else ""
        raise DescriptionError(f"{key}.kind", kind, expected + near_match(str(kind), sorted(KINDS)))
    given = validated(KINDS[kind], {name: value for name, value in table.items() if name != "kind"}, key)
    everybody = [actor for actor in actors if actor != SERVER]
    return Fault(
        kind=kind,
        number=number,
        span=_span(key, given),
        clients=_clients(f"{key}.clients", given["clients"], everybody) if "clients" in given else frozenset(),
        groups=_groups(f"{key}.groups", given["groups"], actors) if "groups" in given else (),
        factor=_number(key, given, "factor", 1.0, 1e6, 1.0),
        probability=_number(key, given, "probability", 0.0, 1.0, 0.0),
        delay_ns=round(_number(key, given, "delay_s", 1e-9, MOST_S, 0.0) * NANOSECONDS),
        keeps_state=given.get("keeps_state", True),
    )


def _span(key: str, given: Mapping[str, Any]) -> Span:
    """When a fault holds; raises DescriptionError for dates that cannot be, or that are not of one sort."""
    seconds = [given["at_s"], given["until_s"]]
    rounds = [given["at_round"], given["until_round"]]
    in_rounds = rounds != [None, None]
    if in_rounds and seconds != [None, None]:
        raise DescriptionError(f"{key}.at_round", rounds[0], "date it in seconds or in rounds, not in both")
    names = ("at_round", "until_round") if in_rounds else ("at_s", "until_s")
    for name in names:
        if given[name] is not None and not 0 <= given[name] <= MOST_S:
            raise DescriptionError(f"{key}.{name}", given[name], f"must be from 0 to {MOST_S:g}")
    begins, ends = rounds if in_rounds else seconds
    if ends is not None and not (begins or 0) < ends:
        raise DescriptionError(f"{key}.{names[1]}", ends, f"must be after {names[0]}, {begins or 0:g}")
    scale = 1 if in_rounds else NANOSECONDS
    return Span(round((begins or 0) * scale), None if ends is None else round(ends * scale), in_rounds)


def _number(key: str, given: Mapping[str, Any], name: str, least: float, most: float, absent: float) -> float:
    value = float(given.get(name, absent))
    if name in given and not least <= value <= most:
        raise DescriptionError(f"{key}.{name}", given[name], f"must be from {least:g} to {most:g}")
    return value


def _clients(key: str, given: Sequence[Name] | None, clients: Sequence[str]) -> frozenset[str]:
    """The clients that a list names; all of them where there is none."""
    if given is None:
        return frozenset(clients)
    if not given:
        raise DescriptionError(key, given, "must name at least one client")
    return frozenset(_actor(f"{key}.{place}", name, clients) for place, name in enumerate(given))


def _groups(key: str, given: Sequence[Sequence[Name]], actors: Sequence[str]) -> tuple[frozenset[str], ...]:
    """The groups of a partition: apart from each other, and "others" in one of them are all that no group names."""
    if len(given) < 2:
        raise DescriptionError(key, given, "must be a list of at least two groups")
    named: list[set[str]] = []
    for place, group in enumerate(given):
        found = {_actor(f"{key}.{place}", name, actors) for name in group if name != OTHERS}
        for twice in sorted(found & set().union(*named)):
            raise DescriptionError(f"{key}.{place}", twice, "is in an earlier group already")
        named.append(found)
    with_others = [place for place, group in enumerate(given) if OTHERS in group]
    if len(with_others) > 1:
        raise DescriptionError(f"{key}.{with_others[1]}", OTHERS, "are in an earlier group already")
    for place in with_others:
        named[place] |= set(actors) - set().union(*named)
    for place, members in enumerate(named):
        if not members:
            raise DescriptionError(f"{key}.{place}", given[place], "has nobody in it")
    return tuple(frozenset(members) for members in named)


def _actor(key: str, given: Name, actors: Sequence[str]) -> str:
    actor = ways_to_write(actors).get(str(given))
    if actor is None:
        named = f"{actors[0]}, ..., {actors[-1]}" if len(actors) > 8 else ", ".join(actors)
        close = get_close_matches(str(given), actors, n=1, cutoff=0.5)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise DescriptionError(key, given, f"is nobody; known are {named}, or the number of a client{meant}")
    return actor
