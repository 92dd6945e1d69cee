"""Who may go on when peers wait for each other under the virtual clock; carries no payload and decides no order.

A peer takes a message only when nothing that is still unknown can fall due before it. Mostly it sees that by itself:
each message says until when its sender will be quiet. Where that is not enough it reports to the arbiter, which lives
with the coordinator, when it could next act, how many messages it has sent to whom, and how many have reached it from
whom. The arbiter asks others to report, too, as far as they hold somebody up. Reports come one by one, so they are
snapshots of different moments; together they tell the truth all the same:

    what a peer reports as sent and its receiver has not reported as come is *under way*, and may let the receiver act
    floor    the earliest time at which anybody may act, as far as reported and under way
    delta    the least latency between two peers
    licence  of one that waits: nothing unknown falls due at or before
             min(the others' earliest, floor + delta) + delta,
             for what is not under way yet leaves from one that acts, or from one that it wakes a latency later

Who has left the run acts no more. The others come to know that as of a simulated time before which no licence reaches,
so until one has said that it has heard of it, it may act then, and take what had been sent to it before.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FAR_NS = 1 << 62
"""Later than anything: nothing will happen by itself."""


class Say(NamedTuple):
    """What the arbiter has to say to a peer: its licence, or until when it is to tell when it could act."""

    to: str
    kind: str  # LICENCE or TELL
    until_ns: int


@dataclass
class _Peer:
    """What a peer has reported."""

    next_ns: int = 0
    wants: bool = False
    told_ns: int = -1
    """Until when it has been asked to report."""
    sent: dict[str, int] = field(default_factory=dict)
    come: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, int] = field(default_factory=dict)
    """By sender: when the earliest left that is on its way to this peer."""
    has_left: bool = False
    hears_ns: dict[str, int] = field(default_factory=dict)
    """By who has left and this peer may not have heard of: as of when it will."""


class Arbiter:
    """Knows what `peers` have reported, and says who may go on; least latencies are in nanoseconds."""

    def __init__(self, peers: Sequence[str], least_latency_ns: int) -> None:
        self._peers = {name: _Peer() for name in peers}
        self._latency_ns = least_latency_ns
        self._latest_ns = 0
        """Until when the furthest licence has reached so far."""

    def leave(self, name: str) -> int:
        """`name` has left the run; as of when the others are to hear of that."""
        gone, hears_ns = self._peers[name], self._latest_ns if self._latest_ns < FAR_NS else 0
        gone.has_left, gone.wants = True, False
        for peer in self._peers.values():
            peer.hears_ns[name] = hears_ns
        return hears_ns

    def heard(self, name: str, of: str) -> list[Say]:
        """`name` has reported all that has come, and takes nothing more from one who has left; what follows."""
        peer = self._peers[name]
        peer.hears_ns.pop(of, None)
        peer.under_way.pop(of, None)
        return self._licences() + self._questions()

    def is_report(self, facts: Mapping[str, Any]) -> bool:
        """Whether `take` can take this, whoever has made it."""
        if facts.keys() != {"next_ns", "wants", "sent", "come"} or type(facts["wants"]) is not bool:
            return False
        counted = [facts[which] for which in ("sent", "come")]
        if not all(isinstance(counts, dict) and counts.keys() <= self._peers.keys() for counts in counted):
            return False
        pairs = [pair for counts in counted for pair in counts.values()]
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            return False
        return all(
            type(number) is int and 0 <= number <= FAR_NS for number in (facts["next_ns"], *sum(map(tuple, pairs), ()))
        )

    def take(self, sender: str, facts: Mapping[str, Any]) -> list[Say]:
        """What follows from a report: {next_ns, wants, sent: {to: [count, first_ns]}, come: {from: [count, last_ns]}}.

        Counts are from the beginning; `first_ns` is when the first left that is new, `last_ns` when the last did.
        """
        peer = self._peers[sender]
        peer.next_ns, peer.wants = facts["next_ns"], facts["wants"]
        for to, (count, first_ns) in facts["sent"].items():
            peer.sent[to] = count
            receiver = self._peers[to]
            if receiver.come.get(sender, 0) < count:
                receiver.under_way.setdefault(sender, first_ns)
        for source, (count, last_ns) in facts["come"].items():
            peer.come[source] = count
            if count >= self._peers[source].sent.get(sender, 0):
                peer.under_way.pop(source, None)
            elif source in peer.under_way:  # what is still on its way left after what has come
                peer.under_way[source] = max(peer.under_way[source], last_ns)
        return self._licences() + self._questions()

    def _licences(self) -> list[Say]:
        waiting = [name for name, peer in self._peers.items() if peer.wants]
        if not waiting:
            return []
        acts = {name: self._acts_ns(peer) for name, peer in self._peers.items()}
        first, second = _two_least(acts.values())
        said = []
        for name in waiting:
            peer = self._peers[name]
            others = second if acts[name] == first else first
            until_ns = min(others, first + self._latency_ns) + self._latency_ns
            until_ns = min([until_ns, *(left_ns + self._latency_ns for left_ns in peer.under_way.values())])
            until_ns = min([until_ns, *peer.hears_ns.values()])
            if peer.next_ns <= until_ns:
                peer.wants = False
                self._latest_ns = max(self._latest_ns, until_ns)
                said.append(Say(name, "LICENCE", until_ns))
        return said

    def _questions(self) -> list[Say]:
        """Ask those who hold somebody up, or do not know of a message yet that may wake them, to report."""
        waiting = [peer.next_ns for peer in self._peers.values() if peer.wants]
        if not waiting:
            return []
        until_ns, said = max(waiting), []
        for name, peer in self._peers.items():
            if peer.told_ns < until_ns and not peer.wants and self._acts_ns(peer) < until_ns:
                peer.told_ns = until_ns
                said.append(Say(name, "TELL", until_ns))
        return said

    def _acts_ns(self, peer: _Peer) -> int:
        """The earliest time at which a peer may act, as far as is known."""
        if peer.has_left:
            return FAR_NS
        woken_ns = min(peer.under_way.values(), default=FAR_NS) + self._latency_ns
        return min([peer.next_ns, woken_ns, *peer.hears_ns.values()])


def _two_least(times: Iterable[int]) -> tuple[int, int]:
    first = second = FAR_NS
    for time_ns in times:
        if time_ns < first:
            first, second = time_ns, first
        elif time_ns < second:
            second = time_ns
    return first, second


class Reports:
    """What one peer has to report: what has left and come since the last time, and until when it is asked to."""

    def __init__(self, least_latency_ns: int) -> None:
        self.asked_until_ns = -1
        self._latency_ns = least_latency_ns
        self._sent: dict[str, int] = {}
        self._come: dict[str, tuple[int, int]] = {}
        self._new_sent: dict[str, tuple[int, int]] = {}
        self._acknowledged_ns: dict[str, int] = {}
        """By sender of something new: when the last left that was reported as come, or 0."""
        self._last: tuple[int, bool] = (-1, False)

    def sent(self, to: str, at_ns: int, copies: int) -> None:
        """So many copies of a message have left for `to`."""
        count = self._sent[to] = self._sent.get(to, 0) + copies
        self._new_sent[to] = count, self._new_sent.get(to, (0, at_ns))[1]

    def came(self, sender: str, left_ns: int) -> None:
        """A message of `sender` has come, whatever it was."""
        count, last_ns = self._come.get(sender, (0, 0))
        self._acknowledged_ns.setdefault(sender, last_ns)
        self._come[sender] = count + 1, left_ns

    @property
    def all_sent(self) -> dict[str, int]:
        """How many messages have left for whom since the beginning."""
        return dict(self._sent)

    def have_come(self, counts: Mapping[str, int], lost: Collection[str]) -> bool:
        """Whether so many messages, by sender, have come since the beginning; of who is lost none have to."""
        return all(self._come.get(one, (0, 0))[0] >= count for one, count in counts.items() if one not in lost)

    def due(self, next_ns: int, wants: bool, *, asked: bool = False) -> dict[str, Any] | None:
        """The report that is due from one that acts at `next_ns` at the earliest; None if none is.

        One is due if this peer wants a licence, or went on without the one that it wanted, or if the arbiter may
        believe that it acts before the time until which it was asked to tell, or if it is `asked` now.
        """
        if not (wants or self.want or asked or self.are_asked()):
            return None
        if (next_ns, wants) == self._last and not self._acknowledged_ns:
            return None
        self._last = next_ns, wants
        come = {sender: self._come[sender] for sender in self._acknowledged_ns}
        facts = {"next_ns": next_ns, "wants": wants, "sent": self._new_sent, "come": come}
        self._new_sent, self._acknowledged_ns = {}, {}
        return facts

    @property
    def want(self) -> bool:
        """Whether the last one said that this peer wants a licence, which it has not got."""
        return self._last[1]

    def are_asked(self) -> bool:
        """Whether the arbiter may believe that this peer acts before the time until which it asked it to tell."""
        return self._is_believed_to_act_ns() < self.asked_until_ns

    def was_licensed(self, until_ns: int) -> None:
        """What it wanted it has, unless it was an older report that this answers; what it wants again is new."""
        if until_ns >= self._last[0]:
            self._last = self._last[0], False

    def _is_believed_to_act_ns(self) -> int:
        woken_ns = min(self._acknowledged_ns.values(), default=FAR_NS) + self._latency_ns
        return min(self._last[0], woken_ns)
