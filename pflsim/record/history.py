"""When everybody did what, indexed by actor: what explaining a run's time starts from."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

from pflsim.record.database import Reader

SERVER, COORDINATOR = "server", "coordinator"
WAIT = "wait"


class Period(NamedTuple):
    """A round, from its first message to its end; or a step, the round of one peer."""

    round: int
    start_ns: int
    end_ns: int


class Span(NamedTuple):
    """What an actor did from when to when; `wait` is the absence of anything else."""

    actor: str
    what: str
    start_ns: int
    end_ns: int
    round: int


class Transit(NamedTuple):
    """A message of the method that arrived; its bytes are those of tensors and of the header frame."""

    sender: str
    receiver: str
    kind: str
    sequence: int
    round: int
    departure_ns: int
    arrival_ns: int
    payload_bytes: int
    header_bytes: int

    @property
    def client(self) -> str:
        """The end that is not the server."""
        return self.receiver if self.sender == SERVER else self.sender


_Row = TypeVar("_Row", Span, Transit)


class History:
    """Rounds, spans and arrived messages of one run, in the order of simulated time."""

    def __init__(
        self,
        rounds: Iterable[Period],
        spans: Iterable[Span],
        transits: Iterable[Transit],
        steps: Mapping[str, Iterable[Period]] | None = None,
    ) -> None:
        """`steps` are those of each peer; None where there is a server."""
        self.rounds = sorted(rounds)
        self.has_peers = steps is not None
        self.steps: dict[str, list[Period]] = {peer: sorted(own) for peer, own in (steps or {}).items()}
        self.spans: dict[str, list[Span]] = _by_actor(spans, "actor")
        self.taken: dict[str, list[Transit]] = _by_actor(transits, "receiver")
        """By receiver, in the order in which it takes them."""
        for own in self.spans.values():
            own.sort(key=lambda span: (span.end_ns, span.start_ns))
        for came in self.taken.values():
            came.sort(key=lambda one: (one.arrival_ns, one.sender, one.sequence))
        works = {
            actor: [span for span in own if span.what != WAIT and span.end_ns > span.start_ns]
            for actor, own in self.spans.items()
        }
        self._works = {actor: ([span.end_ns for span in own], own) for actor, own in works.items()}
        self._arrivals = {actor: ([one.arrival_ns for one in came], came) for actor, came in self.taken.items()}

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """The history that a record tells."""
        select = (
            "SELECT sender, receiver, kind, sequence, round, departure_ns, arrival_ns, sent_payload_bytes, "
            "sent_header_bytes FROM messages WHERE channel = 'data' AND arrival_ns IS NOT NULL AND "
            "departure_ns IS NOT NULL"
        )
        return cls(
            [Period(*row) for row in reader.query("SELECT round, start_ns, end_ns FROM rounds")],
            [Span(*row) for row in reader.query("SELECT actor, what, start_ns, end_ns, round FROM spans")],
            [Transit(*row) for row in reader.query(select)],
            _steps(reader) if is_among_peers(reader) else None,
        )

    @property
    def end_ns(self) -> int:
        """When the last round ended, or the last step of any peer."""
        periods = [*self.rounds, *(step for own in self.steps.values() for step in own)]
        return max((period.end_ns for period in periods), default=0)

    def ends_ns(self, actor: str) -> int:
        """When `actor` was through: at the end of the run, or of its own last step."""
        own = self.steps.get(actor)
        return own[-1].end_ns if own else self.end_ns

    @property
    def actors(self) -> list[str]:
        """Everybody who did, sent or took something: the server, then the clients by name."""
        senders = {one.sender for came in self.taken.values() for one in came}
        everybody = {*self.spans, *self.taken, *senders}
        return sorted(everybody, key=lambda name: (name != SERVER, name))

    def transits(self) -> list[Transit]:
        """All messages of the method that arrived, by departure."""
        came = [one for taken in self.taken.values() for one in taken]
        return sorted(came, key=lambda one: (one.departure_ns, one.sender, one.receiver, one.sequence))

    def work_before(self, actor: str, at_ns: int) -> Span | None:
        """The last span of `actor` other than a wait, and longer than nothing, that had ended by `at_ns`."""
        return _last(self._works.get(actor), at_ns)

    def taken_before(self, actor: str, at_ns: int) -> Transit | None:
        """The last message that had reached `actor` by `at_ns`, of those of one moment the first by sender."""
        last = _last(self._arrivals.get(actor), at_ns)
        if last is None:
            return None
        times_ns, came = self._arrivals[actor]
        return came[bisect_left(times_ns, last.arrival_ns)]


def is_among_peers(reader: Reader) -> bool:
    """Whether a record is of a run without a server."""
    return bool(reader.query("SELECT 1 FROM events WHERE actor = ? LIMIT 1", COORDINATOR))


def _steps(reader: Reader) -> dict[str, list[Period]]:
    """The steps of each peer, by name: those of names that sort as their numbers do."""
    names = [name for (name,) in reader.query("SELECT actor FROM events WHERE what = 'joined' ORDER BY actor")]
    found: dict[str, list[Period]] = {name: [] for name in names}
    for client, *step in reader.query("SELECT client, round, start_ns, end_ns FROM steps"):
        found[names[client]].append(Period(*step))
    return found


def _by_actor(rows: Iterable[_Row], who: str) -> dict[str, list[_Row]]:
    found: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        found[getattr(row, who)].append(row)
    return dict(found)


def _last(indexed: tuple[Sequence[int], Sequence[_Row]] | None, at_ns: int) -> _Row | None:
    if indexed is None:
        return None
    times_ns, rows = indexed
    index = bisect_right(times_ns, at_ns)
    return rows[index - 1] if index else None
