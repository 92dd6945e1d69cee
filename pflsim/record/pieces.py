"""What became of each piece of work: whether it was of use, and what it had cost in bytes and in computing.

A piece of work begins when a WORK leaves the server and comprises what its client does and sends until the next WORK
reaches it. It was of use if its RESULT was folded in.
"""

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
    found: list[Piece] = []
    for client, given in sorted(works.items()):
        fates = _fates(answers.get(client, []), told.get(client, []), end_ns)
        begins_ns = [one.arrival_ns if one.arrival_ns is not None else one.departure_ns for one in given]
        own = answers.get(client, [])
        departures_ns = [one.departure_ns for one in own]
        starts_ns = [start_ns for start_ns, _, _ in spans.get(client, [])]
        for index, work in enumerate(given):
            is_last = index + 1 == len(given)
            left = slice(
                bisect_left(departures_ns, begins_ns[index]),
                None if is_last else bisect_left(departures_ns, begins_ns[index + 1]),
            )
            done = spans.get(client, [])[
                bisect_left(starts_ns, begins_ns[index]) : None
                if is_last
                else bisect_left(starts_ns, begins_ns[index + 1])
            ]
            until_ns = None if is_last else given[index + 1].departure_ns
            fate = fates[left][-1] if fates[left] else _unanswered(work, done, told.get(client, []), until_ns)
            charged_bytes = work.charged_bytes + sum(one.charged_bytes for one in own[left])
            found.append(Piece(client, work.round, fate, charged_bytes, sum(took_ns for _, took_ns, _ in done)))
    return found


def _fates(answers: list[_Message], told: list[tuple[int, str]], end_ns: int) -> list[str]:
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


def _unanswered(
    work: _Message, done: list[tuple[int, int, str]], told: list[tuple[int, str]], until_ns: int | None
) -> str:
    if any(what == CANCELLED for _, _, what in done):
        return CANCELLED
    times_ns = [at_ns for at_ns, what in told if what == CANCELLED]
    following = bisect_right(times_ns, work.departure_ns)
    if following < len(times_ns) and (until_ns is None or times_ns[following] <= until_ns):
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


def _spans(reader: Reader) -> Mapping[str, list[tuple[int, int, str]]]:
    """By client, (start, length, what) of its computing."""
    select = f"""
        SELECT actor, start_ns, end_ns - start_ns, what FROM spans
        WHERE what IN ({", ".join("?" * len(_COMPUTING))}) ORDER BY start_ns, rowid"""
    found: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for actor, *span in reader.query(select, *_COMPUTING):
        found[actor].append((span[0], span[1], span[2]))
    return found


def _events(reader: Reader) -> Mapping[str, list[tuple[int, str]]]:
    """By client, (time, what) of all that the server did not take of it."""
    select = """
        SELECT actor, simulated_ns, what FROM events WHERE what IN (?, ?, ?, ?)
        ORDER BY simulated_ns, rowid"""
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for actor, at_ns, what in reader.query(select, *_ON_ARRIVAL, CANCELLED):
        found[actor].append((at_ns, what))
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
