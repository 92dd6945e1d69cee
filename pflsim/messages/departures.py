"""What leaves an actor: encoded once, stamped by its uplink, delayed and struck as links and faults say.

Messages of one simulated instant leave together and share the uplink. What befalls a message is decided here, at its
sender, once and for all: it takes its place on the uplink in any case, and may then arrive, arrive twice, or be lost.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
from torch import Tensor

from pflsim.coding.direction import Coded
from pflsim.messages import wire
from pflsim.messages.wire import BYE, Frame, Message
from pflsim.timing.clock import require_countable
from pflsim.timing.fair_share import Flight, Transfer
from pflsim.timing.faults import Faults
from pflsim.timing.links import Links, wire_bytes

Sizes = tuple[int, int, int]
Burst = tuple[int, int, int, int]


class Departure(NamedTuple):
    """A message as it leaves."""

    message: Message
    frames: list[Frame]
    sizes: Sizes  # what left of it: (payload, header, stamp) bytes
    copies: int  # how many of it arrive
    lost: str  # why none does
    is_whole: bool  # whether all of it has left


class Departures:
    """The outbox of the actor `name`, and its uplink."""

    def __init__(self, name: str, run_id: bytes, links: Links, faults: Faults) -> None:
        self._name, self._run_id, self._links, self._faults = name, run_id, links, faults
        self._uplink = links.uplink(name)
        self._outbox: list[tuple[Message, list[Frame]]] = []
        self._encoded: dict[tuple[int, ...], tuple[list[list[object]], list[Frame]]] = {}
        self._last_byte_ns: Counter[str] = Counter()
        self.mark()

    def put(self, message: Message) -> None:
        """Let `message` leave with the others of this instant. Raises TypeError or ValueError if it cannot travel."""
        descriptions, frames = self._frames_of(message.tensors, message.coded)
        header = wire.encode_header(message, self._run_id, descriptions)
        self._outbox.append((message, [header, b"", *frames]))

    def leave(self, now_ns: int, paused_ns: int, by_ns: int | None = None) -> Iterator[Departure]:
        """Let go what was put in, at `now_ns`; what has not left whole `by_ns` is lost, as its sender leaves then."""
        if not self._outbox:
            return
        outbox, self._outbox = self._outbox, []
        self._encoded.clear()
        data = [(message, frames) for message, frames in outbox if message.channel == "data"]
        flights = iter(self._uplink.stamp(now_ns, [self._transfer(now_ns, *one) for one in data]) if data else ())
        for message, frames in outbox:
            flight = next(flights) if message.channel == "data" else None
            yield self._departure(message, frames, flight, now_ns, paused_ns, by_ns)

    def mark(self) -> None:
        """Remember what is under way, so that what leaves from now on can be undone."""
        self._marked = self._uplink.under_way(), self._last_byte_ns.copy()

    def undo(self) -> None:
        """What has left since the mark has not."""
        under_way, self._last_byte_ns = self._marked
        self._uplink.resume(under_way)
        self._marked = under_way, self._last_byte_ns.copy()

    def kept(self) -> dict[str, Any]:
        """What `restore` needs when nothing is in the outbox."""
        return {"uplink": self._uplink.under_way(), "last_byte_ns": self._last_byte_ns, "marked": self._marked}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from where `kept` was told."""
        under_way, last_byte_ns = kept["marked"]
        self._marked = under_way, Counter(last_byte_ns)
        self._uplink.resume(kept["uplink"])
        self._last_byte_ns = Counter(kept["last_byte_ns"])

    def hang_up(self) -> None:
        """Forget what was still to leave: this actor is away."""
        self._uplink.hang_up()

    def _departure(
        self,
        message: Message,
        frames: list[Frame],
        flight: Flight | None,
        now_ns: int,
        paused_ns: int,
        by_ns: int | None,
    ) -> Departure:
        copies, lost, share = 1, "", 1.0
        if flight is not None:
            share = 1.0 if by_ns is None else flight.share_by(by_ns)
            flight = self._in_order(message, flight, now_ns)
            copies, lost = self._fate(message, now_ns)
            if share < 1:
                copies, lost = 0, f"{self._name} left while it was sending"
        frames[1] = msgpack.packb((now_ns, paused_ns, flight.as_list() if flight else None, message.quiet_ns))
        payload, header, stamp = frame_sizes(frames)
        left = (int(payload * share), int(header * share), stamp)
        return Departure(message, frames, left, copies, lost, share == 1)

    def _fate(self, message: Message, now_ns: int) -> tuple[int, str]:
        """How many copies of it arrive, and why none does."""
        if not self._faults:
            return 1, ""
        met = (self._name, message.to, message.sequence, now_ns, _dated(message))
        if self._faults.passes_ns(self._name, message.to, now_ns, _dated(message)) is None:
            return 0, f"a partition keeps {self._name} and {message.to} apart"
        if self._faults.loses(*met):
            return 0, "lost on the way"
        return (2, "") if self._faults.duplicates(*met) else (1, "")

    def _transfer(self, now_ns: int, message: Message, frames: Sequence[Frame]) -> Transfer:
        size_bytes = wire_bytes([len(frames[0]), *map(len, frames[2:])])
        transfer = self._links.transfer(self._name, message.to, size_bytes, message.sequence)
        if not self._faults:
            return transfer
        slower = self._faults.link_factor(self._name, message.to, now_ns, _dated(message))
        if slower == 1:
            return transfer
        return transfer._replace(downlink=min(transfer.downlink, self._uplink.rate) / slower)

    def _in_order(self, message: Message, flight: Flight, now_ns: int) -> Flight:
        """One connection keeps its messages in order, whatever holds one back, and waits while its ends are apart."""
        first_byte_ns = flight.first_byte_ns
        if self._faults:
            met = (self._name, message.to)
            passes_ns = self._faults.passes_ns(*met, now_ns, _dated(message)) or now_ns
            held_back_ns = self._faults.held_back_ns(*met, message.sequence, now_ns, _dated(message))
            first_byte_ns += passes_ns - now_ns + held_back_ns
        first_byte_ns = max(first_byte_ns, self._last_byte_ns[message.to])
        last_byte_ns = first_byte_ns + math.ceil(flight.put_out[-1][0])
        require_countable(self._name, f"its {message.kind} to {message.to}", last_byte_ns)
        self._last_byte_ns[message.to] = first_byte_ns + max(1, math.ceil(flight.put_out[-1][0]))
        return flight._replace(latency_ns=first_byte_ns - flight.departure_ns)

    def _frames_of(
        self, tensors: Mapping[str, Tensor], coded: Mapping[str, Coded]
    ) -> tuple[list[list[object]], list[Frame]]:
        """Encode what is sent to many receivers at one instant only once; the same tensors are the same frames."""
        key = tuple(map(id, tensors.values()))
        encoded = self._encoded.get(key)
        if encoded is None or [d[0] for d in encoded[0]] != list(tensors):
            encoded = self._encoded[key] = wire.tensor_frames(tensors, coded)
        return encoded


def burst_of(departures: Iterable[Departure]) -> Burst | None:
    """Of the messages with tensors among these, which left at one instant: how many there are, their payload bytes,
    how many payloads differ, and the bytes of these; None if there are fewer than two.

    Payloads are equal if they are the same frames, see `Departures`: then one copy, sent to many at a time, would do.
    """
    carrying = [one for one in departures if one.message.channel == "data" and len(one.frames) > 2]
    if len(carrying) < 2:
        return None
    distinct = {tuple(map(id, one.frames[2:])): one.sizes[0] for one in carrying}
    return len(carrying), sum(one.sizes[0] for one in carrying), len(distinct), sum(distinct.values())


def frame_sizes(frames: Sequence[Frame]) -> Sizes:
    """The bytes of a message's frames as they cross the socket: (payload, header, stamp)."""
    return sum(memoryview(frame).nbytes for frame in frames[2:]), len(frames[0]), len(frames[1])


def _dated(message: Message) -> int:
    """The round, from 0, to which a message belongs for faults that are dated in rounds; a farewell to none."""
    return message.round - 1 if message.kind != BYE else -1
