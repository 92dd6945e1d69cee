"""What has come in for an actor, what it is still owed, and what of it may be handed out.

Messages of the method (channel "data") come in over the actor's downlink; evaluation and control take no simulated
time, so they fall due when they were sent. Whoever owes an answer that is not in hand here is *silent*; for each
silent sender there is a time at or before which nothing from it can fall due: what a question needs there and back, or
later what the sender itself has promised. What falls due by then can be handed out, for nothing earlier can still come.
"""

import heapq
import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from pflsim.messages import wire
from pflsim.messages.wire import Message
from pflsim.timing.downlink import Downlink
from pflsim.timing.fair_share import Flight

ASIDE = ("evaluation", "control")
CHANNELS = ("data", *ASIDE)

Sizes = tuple[int, int, int]
Arrival = tuple[int, Message, Sizes]

_SHOWN = 8
_KEPT = ("_asides", "_mail", "_in_hand", "_silent", "_cancelled", "_quiet", "_last_taken_ns", "licensed_ns")


@dataclass
class _Owed:
    """An answer that has not come in; nothing of it can leave its sender, or fall due here, before these times."""

    kind: str
    work_id: int
    due_ns: float
    leaves_ns: float = -math.inf


class Inbox:
    """The inbox of one actor; a channel of None stands for all of them."""

    def __init__(self, downlink: Downlink) -> None:
        self._downlink = downlink
        self._asides: dict[str, list[tuple[int, str, int]]] = {channel: [] for channel in ASIDE}
        self._mail: dict[tuple[str, str, int], tuple[Message, Sizes, int]] = {}
        """By channel, sender and sequence: a message, its sizes, and when it left."""
        self._owed: dict[tuple[str, str], deque[_Owed]] = defaultdict(deque)
        self._in_hand: Counter[tuple[str, str]] = Counter()
        self._silent: dict[str, dict[str, float]] = {channel: {} for channel in CHANNELS}
        self._cancelled: dict[tuple[str, int], float] = {}
        """Work whose answer is void unless it had left before that time."""
        self._quiet: dict[str, float] = {}
        """By who may speak unasked: nothing of it that has not come falls due at or before that time."""
        self._last_taken_ns: dict[str, int] = {}
        """By sender: when the last of its messages of the method that was taken had arrived."""
        self.licensed_ns: float = -math.inf
        """Nothing at all that has not come falls due at or before that time."""

    def listen_to(self, sender: str) -> None:
        """`sender` may speak at any time, without being asked."""
        self._quiet[sender] = -math.inf

    def quieten(self, sender: str, until_ns: float) -> None:
        """Nothing more from `sender` falls due before or at `until_ns`."""
        if sender in self._quiet:
            self._quiet[sender] = max(self._quiet[sender], until_ns)

    @property
    def neighbours(self) -> list[str]:
        """Who may speak at any time."""
        return list(self._quiet)

    @property
    def taken_ns(self) -> int:
        """When the last message of the method that was taken had arrived; all before is settled."""
        return self._downlink.taken_ns

    def settled_ns(self, sender: str) -> int:
        """Nothing of `sender` can begin to come in before that, except in its turn behind what came before."""
        return 0 if self._is_in_turn(sender) else self.taken_ns

    def _is_in_turn(self, sender: str) -> bool:
        is_unasked = sender in self._quiet
        return is_unasked and (
            self._in_hand["data", sender] > 0 or self._last_taken_ns.get(sender, -1) == self.taken_ns
        )

    def expect(self, sender: str, kind: str, work_id: int, not_before_ns: float) -> None:
        """`sender` owes an answer of `kind`, which cannot fall due before or at `not_before_ns`."""
        channel = wire.CHANNEL[kind]
        self._owed[channel, sender].append(_Owed(kind, work_id, not_before_ns))
        self._hush(channel, sender)

    def forgive(self, sender: str, kind: str, work_id: int) -> bool:
        """`sender` no longer owes this answer; False if it never did."""
        channel = wire.CHANNEL[kind]
        owed = self._owed[channel, sender]
        found = [one for one in owed if (one.kind, one.work_id) == (kind, work_id)]
        for one in found:
            owed.remove(one)
        self._hush(channel, sender)
        return bool(found) or (sender, work_id) in self._cancelled

    def forget(self, sender: str) -> list[tuple[str, int]]:
        """`sender` has left the run and owes nothing any more; the channel and work of each answer that it owed."""
        forgotten = []
        for channel in CHANNELS:
            forgotten += [(channel, one.work_id) for one in self._owed.pop((channel, sender), ())]
            self._hush(channel, sender)
        return forgotten

    def silent(self, channel: str | None) -> list[str]:
        """Who owes the answer that is waited for there, in order."""
        owing = next((one for one in _channels(channel) if self._silent[one]), None)
        return sorted(self._silent[owing]) if owing is not None else []

    def promise(self, sender: str, work_id: int, leaves_ns: int, latency_ns: int) -> None:
        """`sender` has said that its answer to this work will not leave before or at `leaves_ns`."""
        for one in self._owed["data", sender]:
            if one.work_id == work_id:
                one.leaves_ns, one.due_ns = leaves_ns, max(one.due_ns, leaves_ns + latency_ns)
                if leaves_ns >= self._cancelled.get((sender, work_id), math.inf):
                    self._owed["data", sender].remove(one)
                break
        self._hush("data", sender)

    def cancel(self, sender: str, work_id: int, from_ns: float) -> tuple[Message, Sizes] | None:
        """The answer to this work is void unless it leaves before `from_ns`; gives back one that was in hand."""
        self._cancelled[sender, work_id] = from_ns
        for one in self._owed["data", sender]:
            if one.work_id == work_id and one.leaves_ns >= from_ns:
                self._owed["data", sender].remove(one)
                break
        void = [
            key
            for key, (message, _, leaves_ns) in self._mail.items()
            if key[:2] == ("data", sender) and message.work_id == work_id and leaves_ns >= from_ns
        ]
        found = None
        for key in void:
            self._downlink.remove((sender, key[2]))
            found = self._mail.pop(key)[:2]
            self._in_hand["data", sender] -= 1
        self._hush("data", sender)
        return found

    def forget_before(self, sender: str, work_id: int) -> None:
        """`sender` has spoken of this work, and keeps its order: nothing older that was cancelled comes."""
        for key in [one for one in self._cancelled if one[0] == sender and one[1] < work_id]:
            del self._cancelled[key]

    def is_void(self, message: Message, leaves_ns: int) -> bool:
        """Whether `message` answers work that was cancelled before it could leave."""
        if message.channel != "data" or message.kind not in wire.ANSWERS:
            return False
        return leaves_ns >= self._cancelled.get((message.sender, message.work_id), math.inf)

    def settle(self, message: Message) -> bool:
        """Whether `message` is the answer that its sender owes next; it is owed no more then."""
        if not self.is_next_answer(message):
            return False
        self._owed[message.channel, message.sender].popleft()
        return True

    def is_next_answer(self, message: Message) -> bool:
        """Whether `message` is the answer that its sender owes next."""
        owed = self._owed.get((message.channel, message.sender))
        kind = wire.INSTEAD.get(message.kind, message.kind)
        return owed is not None and len(owed) > 0 and (owed[0].kind, owed[0].work_id) == (kind, message.work_id)

    def put(self, message: Message, sizes: Sizes, sent_ns: int, flight: Flight | None) -> None:
        """Take in a message: over the downlink if it has a `flight`, else as of when it was sent."""
        channel, sender = message.channel, message.sender
        if flight is not None:
            self._downlink.add((sender, message.sequence), flight, in_turn=self._is_in_turn(sender))
        else:
            heapq.heappush(self._asides[channel], (sent_ns, sender, message.sequence))
        self.forget_before(sender, message.work_id)
        self._mail[channel, sender, message.sequence] = message, sizes, sent_ns
        self._in_hand[channel, sender] += 1
        self._hush(channel, sender)

    def horizon_ns(self, channel: str | None) -> float:
        """Nothing that is still unknown falls due at or before this time."""
        owed_ns = min(min(self._silent[one].values(), default=math.inf) for one in _channels(channel))
        if not self._quiet or channel in ASIDE:
            return owed_ns
        quiet = [until_ns for sender, until_ns in self._quiet.items() if not self._in_hand["data", sender]]
        return max(min([owed_ns, *quiet]), self.licensed_ns)

    def next_due_ns(self, channel: str | None, horizon_ns: float = math.inf) -> int | None:
        """When the earliest message known so far falls due, if not after the horizon."""
        earliest = self._earliest(channel, horizon_ns)
        return None if earliest is None else earliest[0]

    def take(self, channel: str | None) -> Arrival:
        """Take out the earliest message, (arrival, message, sizes); ties go by sender and sequence."""
        earliest = self._earliest(channel, math.inf)
        if earliest is None:
            raise IndexError("nothing has come in")
        arrival_ns, found = earliest
        if found == "data":
            arrival_ns, (sender, sequence) = self._downlink.take()
        else:
            arrival_ns, sender, sequence = heapq.heappop(self._asides[found])
        message, sizes, _ = self._mail.pop((found, sender, sequence))
        self._in_hand[found, sender] -= 1
        if found == "data" and self._owed[found, sender]:
            following = self._owed[found, sender][0]
            following.due_ns = max(following.due_ns, arrival_ns)
        if found == "data":
            self.quieten(sender, arrival_ns)
            self._last_taken_ns[sender] = arrival_ns
        self._hush(found, sender)
        return arrival_ns, message, sizes

    def kept(self) -> dict[str, Any]:
        """What `restore` needs: all that has come and was not taken, and all that is owed."""
        owed = {key: [astuple(one) for one in ones] for key, ones in self._owed.items() if ones}
        return {"downlink": self._downlink.kept(), "owed": owed} | {name: getattr(self, name) for name in _KEPT}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from where `kept` was told."""
        for name in _KEPT:
            setattr(self, name, kept[name])
        self._in_hand = Counter(self._in_hand)
        self._owed.clear()
        self._owed.update({key: deque(_Owed(*one) for one in ones) for key, ones in kept["owed"].items()})
        self._downlink.restore(kept["downlink"])

    def is_empty(self) -> bool:
        """Whether nothing has come that was not taken."""
        return not self._mail

    def can_answer(self, channel: str | None) -> bool:
        """Whether an answer has come, or somebody owes one."""
        return self.is_owed(channel) or self.next_due_ns(channel) is not None

    def is_owed(self, channel: str | None) -> bool:
        """Whether somebody is silent who owes an answer."""
        return any(self._silent[one] for one in _channels(channel))

    def waits_for(self, channel: str | None) -> str:
        """How many have answered, and who still owes what, in words."""
        owing = next((one for one in _channels(channel) if self._silent[one]), None)
        if owing is None:
            return "waiting for the next message"
        names = sorted(self._silent[owing])
        kind = self._owed[owing, names[0]][0].kind
        answered = sum(1 for (one, _), count in self._in_hand.items() if one == owing and count)
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        have = "joined" if kind == wire.JOIN else f"have sent their {kind}"
        return f"{answered}/{answered + len(names)} {have}, waiting for {shown}"

    def _hush(self, channel: str, sender: str) -> None:
        """Note whether `sender` is silent, and until when at least.

        Also with something in hand of it, if more is owed (the last work was cancelled too late): the answer to come
        follows on the same line, and may take its share of this end's downlink before the one in hand has come in.
        """
        owed = self._owed[channel, sender]
        if owed:
            self._silent[channel][sender] = owed[0].due_ns
        else:
            self._silent[channel].pop(sender, None)

    def _earliest(self, channel: str | None, horizon_ns: float) -> tuple[int, str] | None:
        found: list[tuple[int, int, str]] = []
        for order, one in enumerate(reversed(_channels(channel))):  # what takes no time goes first
            if one == "data":
                data = self._downlink.next(before_ns=horizon_ns + 1)
                if data is not None:
                    found.append((data[0], order, one))
            elif self._asides[one] and self._asides[one][0][0] <= horizon_ns:
                found.append((self._asides[one][0][0], order, one))
        if not found:
            return None
        due_ns, _, earliest = min(found)
        return due_ns, earliest


def _channels(channel: str | None) -> tuple[str, ...]:
    return CHANNELS if channel is None else (channel,)
