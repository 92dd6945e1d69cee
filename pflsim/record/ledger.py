"""The byte ledger: what every sender's socket took, what every receiver's gave, and where the rest went.

The two ends agree when, for every (sender, receiver, kind, channel), in messages and in bytes,

    sent = received + lost(reason)

A sent message that was not received is lost: with the reason that the receiver gave when it dropped what came
of it ("malformed"), or else "never arrived". What a receiver dropped and no sent message accounts for, such
as the second copy of a duplicated message, is an extra arrival: it is named, and belongs to no account.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from pflsim.record.database import Reader

NEVER_ARRIVED = "never arrived"


@dataclass(frozen=True)
class Amount:
    """So many messages with so many bytes of tensors, of header frames, and of simulator's control data."""

    messages: int = 0
    payload_bytes: int = 0
    header_bytes: int = 0
    control_bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.messages + other.messages,
            self.payload_bytes + other.payload_bytes,
            self.header_bytes + other.header_bytes,
            self.control_bytes + other.control_bytes,
        )

    @property
    def total_bytes(self) -> int:
        """All bytes."""
        return self.payload_bytes + self.header_bytes + self.control_bytes


@dataclass
class Account:
    """All messages of one kind, on one channel, over one link."""

    sender: str
    receiver: str
    kind: str
    channel: str
    sent: Amount = Amount()
    received: Amount = Amount()
    lost: dict[str, Amount] = field(default_factory=dict)  # by reason

    @property
    def direction(self) -> str:
        """`up` to the server, `down` from it, or `peer`."""
        return direction(self.sender, self.receiver)

    @property
    def agrees(self) -> bool:
        """Whether sent = received + lost."""
        return self.sent == sum(self.lost.values(), self.received)


@dataclass(frozen=True)
class Loss:
    """One message that was sent and not received."""

    sender: str
    receiver: str
    kind: str
    channel: str
    sequence: int
    round: int
    reason: str
    detail: str
    sent_bytes: int
    arrived_bytes: int  # what its receiver was given before it dropped the message

    def __str__(self) -> str:
        about = f" ({self.detail})" if self.detail else ""
        return (
            f"{self.reason}{about}: {self.kind} {self.sender} → {self.receiver}, round {self.round}, number "
            f"{self.sequence} on channel {self.channel}, {self.arrived_bytes} of {self.sent_bytes} bytes"
            " arrived"
        )


@dataclass(frozen=True)
class ExtraArrival:
    """What a receiver dropped and no sent message accounts for: a second copy, or a stranger's message."""

    receiver: str
    sender: str | None
    channel: str | None
    sequence: int | None
    reason: str
    detail: str
    total_bytes: int

    def __str__(self) -> str:
        about = f" ({self.detail})" if self.detail else ""
        number = "" if self.sequence is None else f", number {self.sequence} on channel {self.channel}"
        link = f"{self.sender or 'unknown'} → {self.receiver}"
        return f"{self.reason}{about}: {link}{number}, {self.total_bytes} bytes"


@dataclass(frozen=True)
class Ledger:
    """Every account of a run, with each message named that did not simply arrive once and whole."""

    accounts: tuple[Account, ...]
    losses: tuple[Loss, ...]
    extra_arrivals: tuple[ExtraArrival, ...]
    disagreements: tuple[str, ...]  # messages about which the two ends say different things

    @property
    def agrees(self) -> bool:
        """Whether the two ends agree on every message and every byte."""
        return not self.disagreements and all(account.agrees for account in self.accounts)

    def total(self, channel: str, *directions: str) -> Amount:
        """What was sent on a channel, in these directions (or all); lost messages are included."""
        accounts = (account for account in self.accounts if account.channel == channel)
        wanted = (account.sent for account in accounts if not directions or account.direction in directions)
        return sum(wanted, Amount())

    def lost(self, channel: str) -> Amount:
        """What was lost on a channel, for whatever reason."""
        accounts = (account for account in self.accounts if account.channel == channel)
        return sum((amount for account in accounts for amount in account.lost.values()), Amount())

    def traffic(self) -> dict[str, int | bool]:
        """The totals of the summary. Each byte that was sent is in exactly one of the `_bytes`.

        Payload, headers and numbers of messages are those of the method's own messages (channel data).
        """
        data, evaluation, control = (self.total(channel) for channel in ("data", "evaluation", "control"))
        duplicates = [extra for extra in self.extra_arrivals if extra.reason == "duplicate"]
        return {
            "payload_bytes_up": self.total("data", "up").payload_bytes,
            "payload_bytes_down": self.total("data", "down").payload_bytes,
            "payload_bytes_peer": self.total("data", "peer").payload_bytes,
            "header_bytes": data.header_bytes,
            "evaluation_bytes": evaluation.payload_bytes + evaluation.header_bytes,
            "control_bytes": control.total_bytes + data.control_bytes + evaluation.control_bytes,
            "messages": data.messages,
            "lost_messages": self.lost("data").messages,
            "duplicate_messages": len(duplicates),
            "ends_agree": self.agrees,
        }

    def named(self) -> list[str]:
        """One sentence for each message that did not arrive exactly once and whole."""
        return [*map(str, self.losses), *map(str, self.extra_arrivals), *self.disagreements]


def compression(reader: Reader) -> dict[str, dict[str, float]]:
    """By direction in which a codec was at work: the method's payload, what it would have been without, their ratio."""
    if not reader.query("SELECT 1 FROM sqlite_master WHERE name = 'uncoded'"):
        return {}  # a record from before there were codecs
    found: dict[str, dict[str, float]] = {}
    for sender, receiver, is_coded, payload, raw in reader.query(_UNCODED):
        sums = found.setdefault(direction(sender, receiver), dict.fromkeys(("payload_bytes", "raw_bytes", "coded"), 0))
        for name, value in (("payload_bytes", payload), ("raw_bytes", raw), ("coded", is_coded)):
            sums[name] += int(value)
    return {
        way: {"payload_bytes": sums["payload_bytes"], "raw_bytes": sums["raw_bytes"]}
        | {"ratio": sums["raw_bytes"] / sums["payload_bytes"]}
        for way, sums in sorted(found.items())
        if sums["coded"] and sums["payload_bytes"]
    }


def direction(sender: str, receiver: str) -> str:
    """`up` to the server, `down` from it, or `peer`."""
    return "down" if sender == "server" else "up" if receiver == "server" else "peer"


# One drop for each message that was dropped: it may have been dropped more than once.
_FATES = f"""
    SELECT m.*, d.reason AS reason, d.detail AS detail, d.total_bytes AS arrived_bytes,
           CASE WHEN m.arrival_ns IS NOT NULL THEN '' ELSE COALESCE(d.reason, '{NEVER_ARRIVED}') END AS fate
    FROM messages m LEFT JOIN (SELECT *, MIN(rowid) FROM dropped WHERE sequence IS NOT NULL
                               GROUP BY sender, channel, sequence) d
    ON d.sender = m.sender AND d.channel = m.channel AND d.sequence = m.sequence"""

_SUMS = f"""
    SELECT sender, receiver, kind, channel, fate,
           COUNT(departure_ns), TOTAL(sent_payload_bytes), TOTAL(sent_header_bytes),
           TOTAL(sent_control_bytes),
           COUNT(arrival_ns), TOTAL(received_payload_bytes), TOTAL(received_header_bytes),
           TOTAL(received_control_bytes)
    FROM ({_FATES}) GROUP BY sender, receiver, kind, channel, fate"""

_LOSSES = f"""
    SELECT sender, receiver, kind, channel, sequence, round, fate, COALESCE(detail, ''),
           sent_payload_bytes + sent_header_bytes + sent_control_bytes, COALESCE(arrived_bytes, 0)
    FROM ({_FATES}) WHERE fate != '' ORDER BY sender, channel, sequence"""

_UNCODED = """
    SELECT s.sender, s.receiver, COUNT(u.sequence), TOTAL(s.payload_bytes),
           TOTAL(COALESCE(u.payload_bytes, s.payload_bytes))
    FROM sent s LEFT JOIN uncoded u ON u.sender = s.sender AND u.channel = s.channel AND u.sequence = s.sequence
    WHERE s.channel = 'data' GROUP BY s.sender, s.receiver"""

_EXTRA_ARRIVALS = """
    SELECT receiver, sender, channel, sequence, reason, COALESCE(detail, ''), total_bytes
    FROM dropped d WHERE rowid NOT IN (
        SELECT MIN(d.rowid) FROM dropped d JOIN sent s
        ON d.sender = s.sender AND d.channel = s.channel AND d.sequence = s.sequence
        LEFT JOIN received r ON r.sender = s.sender AND r.channel = s.channel AND r.sequence = s.sequence
        WHERE r.arrival_ns IS NULL GROUP BY s.sender, s.channel, s.sequence)
    ORDER BY receiver, sender, channel, sequence, rowid"""

_DISAGREEMENTS = """
    SELECT sender, receiver, kind, channel, sequence, departure_ns IS NULL,
           sent_payload_bytes, sent_header_bytes, sent_control_bytes,
           received_payload_bytes, received_header_bytes, received_control_bytes
    FROM messages WHERE arrival_ns IS NOT NULL AND (departure_ns IS NULL
        OR sent_payload_bytes != received_payload_bytes OR sent_header_bytes != received_header_bytes
        OR sent_control_bytes != received_control_bytes)
    ORDER BY sender, channel, sequence"""


def balance(reader: Reader) -> Ledger:
    """Draw up the ledger of a record; while the run goes on, what is under way counts as never arrived."""
    return Ledger(
        accounts=_accounts(reader),
        losses=tuple(Loss(*row) for row in reader.query(_LOSSES)),
        extra_arrivals=tuple(ExtraArrival(*row) for row in reader.query(_EXTRA_ARRIVALS)),
        disagreements=tuple(_disagreement(*row) for row in reader.query(_DISAGREEMENTS)),
    )


def _accounts(reader: Reader) -> tuple[Account, ...]:
    accounts: dict[tuple[str, ...], Account] = {}
    lost: defaultdict[tuple[str, ...], dict[str, Amount]] = defaultdict(dict)
    for sender, receiver, kind, channel, fate, *numbers in reader.query(_SUMS):
        link = (sender, receiver, kind, channel)
        account = accounts.setdefault(link, Account(*link, lost=lost[link]))
        sent, received = Amount(*map(int, numbers[:4])), Amount(*map(int, numbers[4:]))
        account.sent += sent
        account.received += received
        if fate:
            account.lost[fate] = sent
    return tuple(accounts.values())


def _disagreement(*row: Any) -> str:
    sender, receiver, kind, channel, sequence, unsent, *sizes = row
    message = f"{kind} {sender} → {receiver}, number {sequence} on channel {channel}"
    if unsent:
        return f"received but never recorded as sent: {message}"
    sent, received = sizes[:3], sizes[3:]
    return f"the two ends differ: {message}: payload, header, control: sent {sent}, received {received}"
