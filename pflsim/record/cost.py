"""What a run's communication cost: by direction, kind, link, client and round, and which part of it was of use.

All of it is made from the byte ledger of both ends. Payload (tensors) and headers are the method's own messages; stamps
(the simulator's), evaluation and control are apart and never charged.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from pflsim.record.accuracy import Point, over_rounds, point_at_target
from pflsim.record.database import Reader
from pflsim.record.ledger import Account, Amount, Ledger, balance
from pflsim.record.pieces import USED, Fate, by_fate, pieces_of
from pflsim.timing.links import FULL_SEGMENT_BYTES, Links, wire_bytes

DIRECTIONS = ("down", "up", "peer")


class Flow(NamedTuple):
    """What was sent in one direction, of one kind, over one link, or by and to one client."""

    name: str
    messages: int
    payload_bytes: int
    header_bytes: int
    resent_bytes: int
    """Sent again because the link had lost a segment, on the wire, so with its framing; by the model of the link."""
    lost_messages: int
    lost_bytes: int
    """Payload and headers of those that never arrived."""

    @property
    def charged_bytes(self) -> int:
        """Payload and headers."""
        return self.payload_bytes + self.header_bytes


class Casting(NamedTuple):
    """What a direction's payload weighs as sent, each receiver a copy, and with equal payloads of an instant once."""

    direction: str
    unicast_bytes: int
    distinct_bytes: int | None
    """None: the record was made before payloads were compared."""


class RoundCost(NamedTuple):
    """Payload and headers of one round."""

    round: int
    charged_bytes: int


class Target(NamedTuple):
    """When a target accuracy was reached for good; `point` is None if it was not."""

    accuracy: float
    point: Point | None


@dataclass(frozen=True)
class Cost:
    """The communication of a run."""

    directions: tuple[Flow, ...]
    kinds: tuple[Flow, ...]
    links: tuple[Flow, ...]
    """The busiest first."""
    clients: tuple[Flow, ...]
    """What each of them sent and received; the busiest first."""
    rounds: tuple[RoundCost, ...]
    evaluation_bytes: int
    control_bytes: int
    stamp_bytes: int
    castings: tuple[Casting, ...]
    fates: tuple[Fate, ...]
    target: Target | None
    ends_agree: bool

    @property
    def total(self) -> Flow:
        """All directions together."""
        sums = [sum(column) for column in zip(*(flow[1:] for flow in self.directions), strict=True)]
        return Flow("total", *(sums or [0] * 6))

    @property
    def useful_bytes(self) -> float | None:
        """The share of the charged bytes that was spent on work that was folded in; None without work of a server."""
        return _share(self.fates, lambda fate: fate.charged_bytes)

    @property
    def useful_computing(self) -> float | None:
        """The share of the clients' computing that was of use."""
        return _share(self.fates, lambda fate: fate.computing_ns)

    @property
    def round_summary(self) -> tuple[RoundCost, float, RoundCost] | None:
        """The first round, the median of all, and the dearest one."""
        if not self.rounds:
            return None
        middle = median(one.charged_bytes for one in self.rounds)
        return self.rounds[0], middle, max(self.rounds, key=lambda one: (one.charged_bytes, -one.round))


def cost_of(reader: Reader, links: Links, target: float | None = None) -> Cost:
    """The cost of a run; `links` are those that it ran on, of which its record does not tell what they resent."""
    ledger = balance(reader)
    accounts = [account for account in ledger.accounts if account.channel == "data"]
    resent = _resent(reader, links)
    points = over_rounds(reader) if target is not None else []
    ways = _flows(accounts, resent, lambda account: [account.direction])
    return Cost(
        directions=tuple(sorted(ways, key=lambda flow: DIRECTIONS.index(flow.name))),
        kinds=tuple(_flows(accounts, resent, lambda account: [f"{account.kind} {account.direction}"])),
        links=tuple(_flows(accounts, resent, lambda account: [f"{account.sender} → {account.receiver}"])),
        clients=tuple(_flows(accounts, resent, _clients)),
        rounds=_rounds(reader),
        **_apart(ledger),
        castings=tuple(_castings(reader, ways)),
        fates=tuple(by_fate(pieces_of(reader))),
        target=None if target is None else Target(target, point_at_target(points, target)),
        ends_agree=ledger.agrees,
    )


def _apart(ledger: Ledger) -> dict[str, int]:
    traffic = ledger.traffic()
    control = ledger.total("control")
    return {
        "evaluation_bytes": int(traffic["evaluation_bytes"]),
        "control_bytes": control.total_bytes,
        "stamp_bytes": int(traffic["control_bytes"]) - control.total_bytes,
    }


def _clients(account: Account) -> list[str]:
    return [end for end in (account.sender, account.receiver) if end not in ("server", "coordinator")]


def _flows(
    accounts: Sequence[Account],
    resent: Counter[tuple[str, str, str]],
    names: Callable[[Account], Iterable[str]],
) -> list[Flow]:
    """The accounts summed up by what they are called, an account under each of its `names`; the busiest first."""
    sums: dict[str, tuple[Amount, int, Amount]] = {}
    for account in accounts:
        again = resent[account.sender, account.receiver, account.kind]
        lost = sum(account.lost.values(), Amount())
        for name in names(account):
            sent, resent_bytes, missing = sums.get(name, (Amount(), 0, Amount()))
            sums[name] = sent + account.sent, resent_bytes + again, missing + lost
    flows = [
        Flow(
            name,
            sent.messages,
            sent.payload_bytes,
            sent.header_bytes,
            again,
            missing.messages,
            missing.payload_bytes + missing.header_bytes,
        )
        for name, (sent, again, missing) in sums.items()
    ]
    return sorted(flows, key=lambda flow: (-flow.charged_bytes, flow.name))


def _resent(reader: Reader, links: Links) -> Counter[tuple[str, str, str]]:
    """The bytes that links sent again, by (sender, receiver, kind); a message is taken as a header and one tensor."""
    found: Counter[tuple[str, str, str]] = Counter()
    if not links.settings.get("loss"):
        return found
    select = """
        SELECT sender, receiver, kind, sequence, payload_bytes, header_bytes FROM sent
        WHERE channel = 'data' AND payload_bytes + header_bytes > 0"""
    for sender, receiver, kind, sequence, payload_bytes, header_bytes in reader.query(select):
        size_bytes = wire_bytes([header_bytes, *([payload_bytes] if payload_bytes else [])])
        again = links.delay(sender, receiver, sequence).retransmissions
        found[sender, receiver, kind] += again * min(size_bytes, FULL_SEGMENT_BYTES)
    return found


def _rounds(reader: Reader) -> tuple[RoundCost, ...]:
    select = """
        SELECT round, SUM(payload_bytes + header_bytes) FROM sent WHERE channel = 'data' AND round > 0
        GROUP BY round ORDER BY round"""
    return tuple(RoundCost(*row) for row in reader.query(select))


def _castings(reader: Reader, ways: Sequence[Flow]) -> Iterable[Casting]:
    saved: Counter[str] = Counter()
    is_told = bool(reader.told("bursts"))
    if is_told:
        select = "SELECT sender, SUM(payload_bytes - distinct_payload_bytes) FROM bursts GROUP BY sender"
        for sender, saved_bytes in reader.query(select):
            saved["down" if sender == "server" else "peer"] += saved_bytes
    for flow in ways:
        if flow.name in ("down", "peer") and flow.payload_bytes:
            yield Casting(flow.name, flow.payload_bytes, flow.payload_bytes - saved[flow.name] if is_told else None)


def _share(fates: Sequence[Fate], of: Callable[[Fate], int]) -> float | None:
    whole = sum(map(of, fates))
    return sum(of(fate) for fate in fates if fate.name == USED) / whole if whole else None
