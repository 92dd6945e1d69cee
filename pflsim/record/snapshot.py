"""How far a run has come, and what each of its clients is at, as far as its record tells by now.

What an actor does is told when it is done, and in batches: a client that has its WORK and has sent nothing since is at
work, or on its way to it. The newest facts of one client may be some simulated time ahead of another's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pflsim.record.accuracy import headline, latest
from pflsim.record.database import Reader
from pflsim.record.history import is_among_peers
from pflsim.record.ledger import direction

COMPUTING, SENDING, WAITING, OFFLINE, DEAD = "computing", "sending", "waiting", "offline", "dead"
STATES = (COMPUTING, SENDING, WAITING, OFFLINE, DEAD)

ENDINGS = ("done", "failed", "interrupted")
_AWAY = ("offline", "lost work", "lost send")


class Slow(NamedTuple):
    """A client and how long its pieces of work took in the mean, in simulated ns."""

    client: str
    mean_ns: float
    pieces: int


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment."""

    rounds: int
    simulated_ns: int
    wall_s: float
    """Host seconds from the beginning of the first round to the end of the last one."""
    accuracies: Sequence[float]
    """Weighted, of every evaluation of which all clients that were not lost have been heard, as fractions of 1."""
    payload_bytes: Mapping[str, int]
    """Of the method's messages so far: up, down, peer."""
    states: Mapping[str, str]
    """By client; empty before anybody has joined."""
    slowest: Sequence[Slow]
    rejected: int
    ended: str
    """As the launcher tells: done, failed or interrupted; "" while it goes on."""

    @property
    def count(self) -> Counter[str]:
        """How many clients are at what."""
        return Counter(self.states.values())


def snapshot(reader: Reader, slowest: int = 5) -> Snapshot:
    """What a record tells by now."""
    is_peers = is_among_peers(reader)
    rounds, end_ns, wall_s, rejected = reader.query(
        "SELECT COUNT(*), COALESCE(MAX(end_ns), 0), COALESCE(MAX(wall_s), 0), COALESCE(SUM(rejected), 0) FROM rounds"
    )[0]
    return Snapshot(
        rounds=rounds,
        simulated_ns=end_ns,
        wall_s=wall_s,
        accuracies=_accuracies(reader, is_peers),
        payload_bytes=_payload_bytes(reader),
        states=_states(reader, is_peers),
        slowest=_slowest(reader, slowest),
        rejected=rejected,
        ended=ending(reader),
    )


def ending(reader: Reader) -> str:
    """How a run ended: "done", "failed" or "interrupted"; "" if it goes on, or if its launcher was killed."""
    endings = ", ".join("?" * len(ENDINGS))
    told = reader.query(f"SELECT what FROM events WHERE actor = 'launcher' AND what IN ({endings})", *ENDINGS)
    return str(told[-1][0]) if told else ""


def _accuracies(reader: Reader, is_peers: bool) -> list[float]:
    model = headline(reader)
    if model is None:
        return []
    if is_peers:  # who are not evaluated at one moment
        return [latest(reader, model).weighted]
    select = """
        SELECT SUM(correct), SUM(total), COUNT(*) FROM evaluations WHERE split = 'test' AND model = ?
        GROUP BY round ORDER BY round"""
    found = reader.query(select, model)
    lost = reader.query("SELECT COUNT(DISTINCT actor) FROM events WHERE what = 'lost'")[0][0]
    least = max(heard for _, _, heard in found) - lost
    return [correct / total for correct, total, heard in found if heard >= least and total]


def _payload_bytes(reader: Reader) -> dict[str, int]:
    found = {"up": 0, "down": 0, "peer": 0}
    select = "SELECT sender, receiver, SUM(payload_bytes) FROM sent WHERE channel = 'data' GROUP BY sender, receiver"
    for sender, receiver, count in reader.query(select):
        found[direction(sender, receiver)] += count
    return found


def _states(reader: Reader, is_peers: bool) -> dict[str, str]:
    joined = [name for (name,) in reader.query("SELECT DISTINCT actor FROM events WHERE what = 'joined' ORDER BY 1")]
    dead = {name for (name,) in reader.query("SELECT actor FROM events WHERE what IN ('died', 'lost')")}
    states = _of_peers(reader) if is_peers else _of_clients(reader)
    return {name: DEAD if name in dead else states.get(name, WAITING) for name in joined}


def _of_clients(reader: Reader) -> dict[str, str]:
    """By the last question to a client and its last answer."""
    asked = _last(reader, "SELECT receiver, MAX(departure_ns) FROM sent WHERE kind IN ('WORK', 'PROBE') GROUP BY 1")
    answers = "FROM {} WHERE kind IN ('RESULT', 'GONE', 'LOSS') GROUP BY 1"
    answered = _last(reader, f"SELECT sender, MAX(departure_ns) {answers.format('sent')}")
    taken = _last(reader, f"SELECT sender, MAX(arrival_ns) {answers.format('received')}")
    away = _away(reader)
    states = {}
    for client, asked_ns in asked.items():
        answered_ns = answered.get(client, -1)
        if answered_ns >= asked_ns:
            states[client] = WAITING if taken.get(client, -1) > answered_ns else SENDING
        else:
            states[client] = OFFLINE if away.get(client, -1) > asked_ns else COMPUTING
    return states


def _of_peers(reader: Reader) -> dict[str, str]:
    """By what a peer did last: who has worked waits for others, and who has learned from them works again."""
    doing = {"compute": WAITING, "mix": COMPUTING, "wait": COMPUTING} | dict.fromkeys(_AWAY, OFFLINE)
    found = reader.query("SELECT actor, what, MAX(end_ns) FROM spans GROUP BY actor")
    return {actor: doing.get(what, WAITING) for actor, what, _ in found}


def _last(reader: Reader, select: str) -> dict[str, int]:
    return {str(actor): int(at_ns) for actor, at_ns in reader.query(select)}


def _away(reader: Reader) -> dict[str, int]:
    places = ", ".join("?" * len(_AWAY))
    select = f"SELECT actor, MAX(end_ns) FROM spans WHERE what IN ({places}) GROUP BY actor"
    return {str(actor): int(at_ns) for actor, at_ns in reader.query(select, *_AWAY)}


def _slowest(reader: Reader, most: int) -> list[Slow]:
    select = """
        SELECT actor, AVG(end_ns - start_ns), COUNT(*) FROM spans WHERE what = 'compute'
        GROUP BY actor ORDER BY 2 DESC, actor LIMIT ?"""
    return [Slow(*row) for row in reader.query(select, most)]
