"""All that an actor holds of the world: `now_ns`, `send`, `recv`, `busy`, `pause` and `safe_point`.

An actor is a straight-line, blocking program. It does not know which clock runs, how its messages travel, nor
whether other actors share its process: a carrier moves the frames and decides when this actor has its turn.

Messages of one simulated instant leave together when the actor next waits or works, and share its uplink. Messages
are handed out in the order (arrival, sender, sequence): under the virtual clock one is handed out only when every
actor that still owes an answer has a message in hand, so that nothing earlier can come any more.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Protocol

import msgpack
from torch import Tensor

from pflsim.errors import BadMessage
from pflsim.messages import wire
from pflsim.messages.wire import Frame, Message
from pflsim.timing.clock import NANOSECONDS, Clock
from pflsim.timing.fair_share import Flight, Transfer
from pflsim.timing.links import Links, wire_bytes


class Carrier(Protocol):
    """Moves frames between actors and hands the turn on."""

    def post(self, to: str, frames: Sequence[Frame]) -> None:
        """Send `frames` to the actor `to`; never blocks."""

    def wait_for_mail(self, port: "Port") -> None:
        """Let others work until the earliest message of `port` may be handed out."""

    def wait_until(self, port: "Port", until_ns: int) -> None:
        """Let others work until `until_ns`, at which the work of `port` is done."""


class Recorder(Protocol):
    """Takes facts about the run; see `pflsim.record.database` for their tables."""

    def tell(self, *fact: Any) -> None:
        """Keep one fact, (table, values...)."""

    def flush(self) -> None:
        """Let the facts told so far be seen."""


class Port:
    """One actor's side of the world."""

    def __init__(
        self, name: str, run_id: bytes, clock: Clock, links: Links, carrier: Carrier, recorder: Recorder
    ) -> None:
        self.name, self.run_id, self.clock, self.recorder = name, run_id, clock, recorder
        self.state: Any = None
        self.round = 0
        self.awaited: set[str] = set()
        """Who owes this actor an answer and has nothing in hand here."""
        self.charged_bytes = 0
        """What the method is charged for so far: headers and payload that this actor sent or received."""
        self._carrier, self._links = carrier, links
        self._uplink, self._downlink = links.uplink(name), links.downlink(name)
        self._outbox: list[tuple[Message, list[Frame]]] = []
        self._encoded: dict[tuple[int, ...], tuple[list[list[object]], list[Frame]]] = {}
        self._sequence: Counter[str] = Counter()
        self._seen: dict[tuple[str, str], int] = {}
        self._asked: dict[str, deque[tuple[str, int]]] = {}
        self._in_hand: Counter[str] = Counter()
        self._control: list[tuple[int, str, int, str]] = []
        self._mail: dict[tuple[str, str, int], tuple[Message, tuple[int, int, int]]] = {}
        self._trace = sha256(name.encode()).digest()

    # what an actor calls

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds since the run began."""
        return self.clock.now_ns()

    def send(
        self,
        to: str,
        kind: str,
        tensors: Mapping[str, Tensor] | None = None,
        facts: Mapping[str, Any] | None = None,
        *,
        round: int = 0,
        version: int = 0,
        work_id: int = 0,
        samples: int = 0,
    ) -> None:
        """Post a message; never blocks. The tensors must not change afterwards."""
        channel = wire.CHANNEL[kind]
        self._sequence[channel] += 1
        message = Message(
            kind,
            self.name,
            to,
            self._sequence[channel],
            round,
            version,
            work_id,
            samples,
            dict(tensors or {}),
        )
        message.facts = dict(facts or {})
        descriptions, frames = self._frames_of(message.tensors)
        header = wire.encode_header(message, self.run_id, descriptions)
        self._outbox.append((message, [header, b"", *frames]))
        if kind in wire.ANSWER:
            self.expect(to, wire.ANSWER[kind], work_id)

    def expect(self, sender: str, kind: str, work_id: int = 0) -> None:
        """`sender` owes this actor an answer of `kind`; every question that is sent says so by itself."""
        self._asked.setdefault(sender, deque()).append((kind, work_id))
        if not self._in_hand[sender]:
            self.awaited.add(sender)

    def recv(self) -> Message:
        """The next message, in simulated order of arrival."""
        self._post_outbox()
        began_ns = self.clock.now_ns()
        self._carrier.wait_for_mail(self)
        message = self._take()
        now_ns = self.clock.now_ns()
        if message.channel == "data" and now_ns > began_ns:
            self.recorder.tell("spans", self.name, "wait", began_ns, now_ns, message.round)
        return message

    @contextmanager
    def busy(self, work_ns: int, what: str = "compute") -> Iterator[None]:
        """Real work, done in the with-block, that takes `work_ns` simulated nanoseconds."""
        self._post_outbox()
        began_ns = self.clock.now_ns()
        yield
        ends_ns = began_ns + work_ns
        self._carrier.wait_until(self, ends_ns)
        self.clock.advance(ends_ns)
        ended_ns = self.clock.now_ns()  # under the wall clock later, where the real work took longer than its model
        self._trace_event("busy", what, "", 0, ended_ns)
        self.recorder.tell("spans", self.name, what, began_ns, ended_ns, self.round)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Work and messages, in the with-block, that take no simulated time: evaluation and the end."""
        self.clock.pause()
        yield
        self.clock.resume()

    def safe_point(self, state: Any) -> None:
        """Between two pieces of work everything that outlives a wait is in `state`: a snapshot may be taken here."""
        self.state = state

    def finish(self) -> None:
        """Post the last words; the actor's program ends after this."""
        self._post_outbox()

    @property
    def trace(self) -> bytes:
        """The sha256 chain over this actor's simulated events so far."""
        return self._trace

    # what a carrier calls

    def deliver(self, message: Message, stamp: list[Any], sizes: tuple[int, int, int]) -> bool:
        """Put what came over the wire into the inbox; False if it is a duplicate or answers nothing asked.

        Raises BadMessage, and has changed nothing, when its stamp cannot be.
        """
        if message.kind not in wire.accepted_by(self.name):
            raise BadMessage(f"{self.name} does not take a {message.kind}")
        source = (message.sender, message.channel)
        if message.sequence <= self._seen.get(source, 0):
            return self._refuse(message, "duplicate", f"{message.kind} {message.sequence} came again", sizes)
        flight = self._flight(message, stamp)  # may refuse it, so nothing must have changed before
        if message.kind in wire.ANSWERS and not self._is_answer(message):
            return self._refuse(message, "unasked", f"{message.kind} {message.work_id} answers nothing", sizes)
        self._seen[source] = message.sequence
        departure_ns, paused_ns = stamp[0], stamp[1]
        self.clock.paused_ns = max(self.clock.paused_ns, paused_ns)
        if flight is not None:
            self._downlink.add((message.sender, message.sequence), flight)
        else:
            heapq.heappush(self._control, (departure_ns, message.sender, message.sequence, message.channel))
        self._mail[message.channel, message.sender, message.sequence] = message, sizes
        self._in_hand[message.sender] += 1
        self.awaited.discard(message.sender)
        return True

    def tell_untaken(self) -> None:
        """Record what has come and was never taken, as when a run fails; the ledger would hold it for lost."""
        while self._mail:
            self._take()

    def may_take(self) -> bool:
        """Whether the earliest message known so far can be handed out now."""
        if self.awaited and self.clock.waits_for_everybody:
            return False
        due_ns = self.next_due_ns()
        return due_ns is not None and self.clock.has_come(due_ns)

    def next_due_ns(self) -> int | None:
        """When the earliest message known so far falls due."""
        data = self._downlink.next()
        control_ns = self._control[0][0] if self._control else None
        if data is None or control_ns is None:
            return control_ns if data is None else data[0]
        return min(data[0], control_ns)

    def waits_for(self) -> str:
        """How many have answered, and who still owes this actor what, in words."""
        if not self.awaited:
            return "waiting for the next message"
        names = sorted(self.awaited)
        kind, _ = self._asked[names[0]][0]
        answered = sum(1 for count in self._in_hand.values() if count)
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        have = "joined" if kind == wire.JOIN else f"have sent their {kind}"
        return f"{answered}/{answered + len(names)} {have}, waiting for {shown}"

    # within

    def _flight(self, message: Message, stamp: list[Any]) -> Flight | None:
        """How a message of the method travels here. Raises BadMessage, naming it, for a stamp that cannot be."""
        if message.channel != "data":
            return None
        try:
            flight = Flight.from_list(stamp[2])
            begins_ns = self.clock.heard_ns(flight.first_byte_ns, self._downlink.taken_ns)
        except BadMessage as problem:
            problem.message = message
            raise
        late_ns = begins_ns - flight.first_byte_ns
        return flight._replace(departure_ns=flight.departure_ns + late_ns) if late_ns else flight

    def _frames_of(self, tensors: Mapping[str, Tensor]) -> tuple[list[list[object]], list[Frame]]:
        """Encode what is sent to many receivers at one instant only once; the same tensors are the same frames."""
        key = tuple(map(id, tensors.values()))
        encoded = self._encoded.get(key)
        if encoded is None or [d[0] for d in encoded[0]] != list(tensors):
            encoded = self._encoded[key] = wire.tensor_frames(tensors)
        return encoded

    def _post_outbox(self) -> None:
        if not self._outbox:
            return
        now_ns = self.clock.now_ns()
        data = [(message, frames) for message, frames in self._outbox if message.channel == "data"]
        transfers = [self._transfer(message, frames) for message, frames in data]
        flights = iter(self._uplink.stamp(now_ns, transfers) if transfers else ())
        for message, frames in self._outbox:
            flight = next(flights) if message.channel == "data" else None
            frames[1] = msgpack.packb((now_ns, self.clock.paused_ns, flight.as_list() if flight else None))
            self._carrier.post(message.to, frames)
            self._tell_sent(message, frames, now_ns)
        self._outbox.clear()
        self._encoded.clear()

    def _transfer(self, message: Message, frames: Sequence[Frame]) -> Transfer:
        size_bytes = wire_bytes([len(frames[0]), *map(len, frames[2:])])
        return self._links.transfer(self.name, message.to, size_bytes)

    def _take(self) -> Message:
        data = self._downlink.next()
        if self._control and (data is None or self._control[0][0] <= data[0]):
            arrival_ns, sender, sequence, channel = heapq.heappop(self._control)
        else:
            arrival_ns, (sender, sequence) = self._downlink.take()
            channel = "data"
            self.clock.advance(arrival_ns)
        message, sizes = self._mail.pop((channel, sender, sequence))
        self._in_hand[sender] -= 1
        if self._asked.get(sender) and not self._in_hand[sender]:
            self.awaited.add(sender)
        if channel == "data":
            self.round = message.round
            self.charged_bytes += sizes[0] + sizes[1]
            self._trace_event("took", message.kind, sender, sequence, arrival_ns)
        self._tell("received", message, sizes, arrival_ns)
        return message

    def _is_answer(self, message: Message) -> bool:
        asked = self._asked.get(message.sender)
        if not asked or asked[0] != (message.kind, message.work_id):
            return False
        asked.popleft()
        return True

    def _refuse(self, message: Message, reason: str, detail: str, sizes: tuple[int, int, int]) -> bool:
        fact = (reason, detail, sum(sizes), message.sender, message.channel, message.sequence)
        self.recorder.tell("dropped", self.name, *fact)
        return False

    def _tell_sent(self, message: Message, frames: Sequence[Frame], now_ns: int) -> None:
        if message.channel == "data":
            self._trace_event("sent", message.kind, message.to, message.sequence, now_ns)
        sizes = frame_sizes(frames)
        if message.channel == "data":
            self.charged_bytes += sizes[0] + sizes[1]
        route = (message.sender, message.to, message.kind, message.channel, message.sequence)
        self.recorder.tell("sent", *route, message.round, *sizes, now_ns)

    def _tell(self, table: str, message: Message, sizes: tuple[int, int, int], at_ns: int) -> None:
        route = (message.sender, message.to, message.kind, message.channel, message.sequence)
        self.recorder.tell(table, *route, *sizes, at_ns)

    def _trace_event(self, what: str, kind: str, other: str, sequence: int, at_ns: int) -> None:
        event: bytes = msgpack.packb((what, kind, other, sequence, at_ns))
        self._trace = sha256(self._trace + event).digest()


def frame_sizes(frames: Sequence[Frame]) -> tuple[int, int, int]:
    """The bytes of a message's frames as they cross the socket: (payload, header, stamp)."""
    return sum(memoryview(frame).nbytes for frame in frames[2:]), len(frames[0]), len(frames[1])


def seconds(nanoseconds: int) -> float:
    """Simulated nanoseconds as seconds."""
    return nanoseconds / NANOSECONDS
