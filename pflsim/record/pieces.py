"""What became of each piece of work: whether it was of use, and what it had cost in bytes and in computing.

A piece of work begins when a WORK leaves the server and comprises what its client does and sends until the next WORK
reaches it. It was of use if its RESULT was folded in.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pflsim.record.database import Reader
from pflsim.record.history import SERVER, is_among_peers

USED = "used"
LATE, STALE, REJECTED, CANCELLED = "late", "stale", "rejected", "cancelled"
LOST, AWAY, UNFINISHED = "lost", "away", "unfinished"

FATES = {
    USED: "folded in",
    LATE: "came too late and was dropped",
    STALE: "too old, and discarded",
    REJECTED: "not finite, and rejected",
    CANCELLED: "cancelled",
    LOST: "a message of it was lost",
    AWAY: "its client left",
    UNFINISHED: "not folded in when the run ended",
}
"""What can become of a piece of work, in words."""

_ON_ARRIVAL = (LATE, STALE, REJECTED)
_COMPUTING = ("compute", "evaluate", "lost work", "lost send", "cancelled")


class Piece(NamedTuple):
    """One piece of work; its bytes are payload and headers that were charged for it, both ways."""

    client: str
    round: int
    fate: str
    charged_bytes: int
    computing_ns: int


class Fate(NamedTuple):
    """All pieces of work with one fate."""

    name: str
    pieces: int
    charged_bytes: int
    computing_ns: int


class _Message(NamedTuple):
    client: str
    kind: str
    sequence: int
    round: int
    charged_bytes: int
    departure_ns: int
    arrival_ns: int | None
    reason: str  # why it was dropped


class _Span(NamedTuple):
    start_ns: int
    took_ns: int
    what: str


class _Event(NamedTuple):
    at_ns: int
    what: str


def by_fate(pieces: Iterable[Piece]) -> list[Fate]:
    """The pieces summed up, those of use first."""
    sums: dict[str, list[int]] = {}
    for piece in pieces:
        found = sums.setdefault(piece.fate, [0, 0, 0])
        for index, amount in enumerate((1, piece.charged_bytes, piece.computing_ns)):
            found[index] += amount
    return [Fate(name, *sums[name]) for name in FATES if name in sums]


def pieces_of(reader: Reader) -> list[Piece]:
    """Every piece of work that a server handed out, by client; among peers every span of computing, without bytes."""
    if is_among_peers(reader):
        return list(_of_peers(reader))
    works, answers = _messages(reader, SERVER), _messages(reader, None)
    spans, told, end_ns = _spans(reader), _events(reader), _end_ns(reader)
    return [
        piece
        for client, given in sorted(works.items())
        for piece in _of_client(given, answers.get(client, []), spans.get(client, []), told.get(client, []), end_ns)
    ]


def _of_client(
    works: list[_Message], answers: list[_Message], spans: list[_Span], told: list[_Event], end_ns: int
) -> Iterator[Piece]:
    """The pieces of work of one client; each lasts until the next one has come in."""
    fates = _fates(answers, told, end_ns)
    left_ns, starts_ns = [one.departure_ns for one in answers], [one.start_ns for one in spans]
    bounds = [one.departure_ns if one.arrival_ns is None else one.arrival_ns for one in works] + [math.inf]
    handed_ns = [one.departure_ns for one in works] + [math.inf]
    for index, work in enumerate(works):
        sent, done = (_within(times_ns, bounds[index], bounds[index + 1]) for times_ns in (left_ns, starts_ns))
        fate = fates[sent][-1] if fates[sent] else _unanswered(work, spans[done], told, handed_ns[index + 1])
        charged_bytes = work.charged_bytes + sum(one.charged_bytes for one in answers[sent])
        yield Piece(work.client, work.round, fate, charged_bytes, sum(one.took_ns for one in spans[done]))


def _within(times_ns: list[int], since_ns: float, until_ns: float) -> slice:
    """Where, in times that ascend, those from `since_ns` on and before `until_ns` are."""
    return slice(bisect_left(times_ns, since_ns), bisect_left(times_ns, until_ns))


def _fates(answers: list[_Message], told: list[_Event], end_ns: int) -> list[str]:
    """What became of each answer of a client, by departure."""
    fates = [_fate(one, end_ns) for one in answers]
    arrived = sorted((one.arrival_ns, index) for index, one in enumerate(answers) if one.arrival_ns is not None)
    for at_ns, what in told:
        index = bisect_right(arrived, (at_ns, len(answers))) - 1
        if what in _ON_ARRIVAL and index >= 0:
            fates[arrived[index][1]] = what
    return fates


def _fate(answer: _Message, end_ns: int) -> str:
    if answer.kind == "GONE":
        return AWAY
    if answer.arrival_ns is None:
        return CANCELLED if answer.reason == CANCELLED else LOST
    return USED if answer.arrival_ns <= end_ns else UNFINISHED


def _unanswered(work: _Message, done: list[_Span], told: list[_Event], until_ns: float) -> str:
    """What became of work to which no answer left before the next one was handed out at `until_ns`."""
    if any(one.what == CANCELLED for one in done):
        return CANCELLED
    if any(one.what == CANCELLED and work.departure_ns < one.at_ns <= until_ns for one in told):
        return CANCELLED
    return UNFINISHED if work.arrival_ns is not None else LOST


def _messages(reader: Reader, sender: str | None) -> Mapping[str, list[_Message]]:
    """By client, by departure: WORKs from the server, or answers to it."""
    if sender == SERVER:
        whom, which = "receiver", "m.sender = 'server' AND m.kind = 'WORK'"
    else:
        whom, which = "sender", "m.receiver = 'server' AND m.kind IN ('RESULT', 'GONE')"
    select = f"""
        SELECT m.{whom}, m.kind, m.sequence, m.round, m.sent_payload_bytes + m.sent_header_bytes, m.departure_ns,
               m.arrival_ns, COALESCE(MIN(d.reason), '')
        FROM messages m LEFT JOIN dropped d
        ON d.sender = m.sender AND d.channel = m.channel AND d.sequence = m.sequence
        WHERE m.channel = 'data' AND m.departure_ns IS NOT NULL AND {which}
        GROUP BY m.sender, m.sequence ORDER BY m.departure_ns, m.sequence"""
    found: defaultdict[str, list[_Message]] = defaultdict(list)
    for row in reader.query(select):
        found[row[0]].append(_Message(*row))
    return found


def _spans(reader: Reader) -> Mapping[str, list[_Span]]:
    """By client, its computing."""
    places = ", ".join("?" * len(_COMPUTING))
    select = (
        f"SELECT actor, start_ns, end_ns - start_ns, what FROM spans WHERE what IN ({places}) ORDER BY start_ns, rowid"
    )
    found: defaultdict[str, list[_Span]] = defaultdict(list)
    for actor, *span in reader.query(select, *_COMPUTING):
        found[actor].append(_Span(*span))
    return found


def _events(reader: Reader) -> Mapping[str, list[_Event]]:
    """By client, what the server did not take of it."""
    select = """
        SELECT actor, simulated_ns, what FROM events WHERE what IN (?, ?, ?, ?)
        ORDER BY simulated_ns, rowid"""
    found: defaultdict[str, list[_Event]] = defaultdict(list)
    for actor, *event in reader.query(select, *_ON_ARRIVAL, CANCELLED):
        found[actor].append(_Event(*event))
    return found


def _end_ns(reader: Reader) -> int:
    (end_ns,) = reader.query("SELECT COALESCE(MAX(end_ns), 0) FROM rounds")[0]
    return int(end_ns)


def _of_peers(reader: Reader) -> Iterator[Piece]:
    fates: dict[Any, str] = {"compute": USED, "lost work": AWAY}
    select = """
        SELECT actor, round, what, end_ns - start_ns FROM spans WHERE what IN ('compute', 'lost work')
        ORDER BY actor, start_ns"""
    for actor, round, what, took_ns in reader.query(select):
        yield Piece(actor, round, fates[what], 0, took_ns)
