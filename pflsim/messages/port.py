"""All that an actor holds of the world: `now_ns`, `send`, `recv`, `busy`, `pause` and `safe_point`.

An actor is a straight-line, blocking program. It does not know which clock runs, how its messages travel, nor
whether other actors share its process: a carrier moves the frames and decides when this actor has its turn.

Messages of one simulated instant leave together when the actor next waits or works, and share its uplink. Messages
are handed out in the order (arrival, sender, sequence): under the virtual clock one is handed out only when every
actor that still owes an answer has a message in hand, so that nothing earlier can come any more.

What takes no simulated time (evaluation, the end, a cancellation) is asked of an actor at any time. One that works just
then under the wall clock answers in between: `when_asked` is the part of its program that does.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import msgpack
from torch import Tensor

from pflsim.coding.direction import Coded
from pflsim.coding.settings import Codecs
from pflsim.errors import BadMessage, RunFailed, few
from pflsim.messages import wire
from pflsim.messages.departures import Departure, Departures, burst_of, frame_sizes
from pflsim.messages.inbox import ASIDE, CHANNELS, Inbox, Sizes
from pflsim.messages.journal import Journal, Recorder
from pflsim.messages.wire import Frame, Message
from pflsim.timing.clock import NANOSECONDS, Clock, require_countable
from pflsim.timing.fair_share import Flight
from pflsim.timing.faults import Faults
from pflsim.timing.links import Links

__all__ = ["Carrier", "Port", "Recorder", "frame_sizes", "seconds"]

_NOTED_OVERRUN_NS, _NOTED_OVERRUN = 1_000_000, 0.01
"""By how much real work must take longer than its model, in all and in proportion, for that to be recorded."""

_KEPT = ("round", "asked_ns", "quiet_ns", "_taken_ns", "_work_id", "_void", "_never_answer", "_sequence", "_seen")

_NO_FAULTS = Faults((), (), 0)


class Carrier(Protocol):
    """Moves frames between actors and hands the turn on."""

    def post(self, to: str, frames: Sequence[Frame]) -> None:
        """Send `frames` to the actor `to`; never blocks."""

    def wait_for_mail(self, port: "Port") -> None:
        """Let others work until the earliest message of `port` may be handed out."""

    def wait_until(self, port: "Port", until_ns: int) -> None:
        """Let others work until `until_ns`, at which the work of `port` is done, or until it is asked something."""

    @property
    def place(self) -> tuple[str, str]:
        """The name of the process of these actors, and where others can find it."""

    def meet(self, actor: str, process: str, endpoint: str) -> None:
        """Be ready to talk to `actor`, which lives in `process`."""

    def part(self, actor: str) -> None:
        """`actor` has left the run: there is nothing more to say to it."""


class Port:
    """One actor's side of the world."""

    def __init__(
        self,
        name: str,
        run_id: bytes,
        clock: Clock,
        links: Links,
        carrier: Carrier,
        recorder: Recorder,
        faults: Faults = _NO_FAULTS,
    ) -> None:
        self.name, self.clock, self.recorder, self._run_id = name, clock, recorder, run_id
        self.state: Any = None
        self.round = 0
        self.asked_ns = 0
        """As of when the last message taken is to be answered: when it was sent, or arrived if it took time."""
        self.promises = False
        """Whether this actor promises, when it starts to work, before when its answer will not leave."""
        self.cancels = False
        """Whether what this actor works on may be cancelled."""
        self.takes = wire.TAKEN_BY.get(name, wire.TAKEN_BY_CLIENT)
        """The kinds that this actor takes."""
        self.codecs = Codecs()
        """How the messages of the method travel."""
        self.inspect: Callable[[Message], None] | None = None
        """Raises BadMessage for a message that no honest actor sends; where strangers may speak."""
        self.when_asked: Callable[[Message], None] | None = None
        """Answers what takes no simulated time while this actor works."""
        self._carrier, self._links = carrier, links
        self._departures, self._inbox = Departures(name, run_id, links, faults), Inbox(links.downlink(name))
        self._wanted: str | None = None
        """The channel on which this actor waits for a message; None for any."""
        self._until_ns: int | None = None
        """When it will wait no longer."""
        self.quiet_ns = 0
        """Until when, after what it sends now, this actor will send nothing more."""
        self._asked: Message | None = None
        """What this actor works on, and has not answered."""
        self._taken_ns = 0
        """When the last message of the method was taken."""
        self._work_id = 0
        """The last work that this actor was given."""
        self._void: set[int] = set()
        """Work that was cancelled, as far as this actor has heard."""
        self._never_answer: set[str] = set()
        """Who will not answer what it was asked last."""
        self.lost: set[str] = set()
        """Who has left the run, for whatever reason, and will never speak again."""
        self._unanswered: dict[str, deque[Message]] = {channel: deque() for channel in CHANNELS}
        """By channel: what is handed out instead of the answers of those who are lost."""
        self._sequence: Counter[str] = Counter()
        self._seen: dict[tuple[str, str], int] = {}
        self._journal = Journal(name, recorder)

    # what an actor calls

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds since the run began."""
        return self.clock.now_ns()

    @property
    def charged_bytes(self) -> int:
        """What the method is charged for so far: headers and payload that this actor sent or received."""
        return self._journal.charged_bytes

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
        coded: Mapping[str, Coded] | None = None,
    ) -> None:
        """Post a message; never blocks. The tensors must not change afterwards; those in `coded` are frames already.

        Raises RunFailed for what no receiver would take.
        """
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
        message.facts, message.coded = dict(facts or {}), dict(coded or {})
        message.quiet_ns = self.quiet_ns if channel == "data" else 0
        try:
            self._departures.put(message)
        except (TypeError, ValueError) as problem:
            raise RunFailed(self.name, f"cannot send its {kind} to {to}: {problem}") from problem
        if self._asked is not None and kind in wire.ANSWERS and work_id == self._asked.work_id:
            self._asked = None
        if kind in wire.ANSWER:
            self.expect(to, wire.ANSWER[kind], work_id)

    def expect(self, sender: str, kind: str, work_id: int = 0) -> None:
        """`sender` owes this actor an answer of `kind`; every question that is sent says so by itself."""
        not_before_ns = -math.inf
        if sender in self.lost:
            self._unanswered[wire.CHANNEL[kind]].append(Message(wire.LOST, sender, self.name, work_id=work_id))
            return
        if wire.CHANNEL[kind] == "data":
            there_and_back_ns = self._links.latency_ns(self.name, sender) + self._links.latency_ns(sender, self.name)
            not_before_ns = self.clock.now_ns() + there_and_back_ns
        self._inbox.expect(sender, kind, work_id, not_before_ns)
        self._never_answer.discard(sender)

    def recv(self, channel: str | None = None) -> Message:
        """The next message (of a channel), in simulated order of arrival."""
        message = self._await(channel, None)
        assert message is not None
        return message

    def recv_within(self, wait_ns: int, channel: str | None = None) -> Message | None:
        """The next message, or None when `wait_ns` simulated nanoseconds have passed; 0 asks for what is there."""
        until_ns = self.clock.now_ns() + wait_ns
        require_countable(self.name, "its wait", until_ns)
        return self._await(channel, until_ns)

    @contextmanager
    def busy(self, work_ns: int, what: str = "compute") -> Iterator[None]:
        """Real work, done in the with-block, that takes `work_ns` simulated nanoseconds."""
        self.post()
        began_ns = self.clock.now_ns()
        ends_ns = began_ns + work_ns
        require_countable(self.name, f"its {what}", ends_ns)
        self._promise(ends_ns)
        yield
        over_ns = self.clock.now_ns() - ends_ns  # only the wall clock has gone on meanwhile
        if over_ns > max(_NOTED_OVERRUN_NS, work_ns * _NOTED_OVERRUN):
            self.recorder.tell("measures", self.round, self.name, "overrun_s", seconds(over_ns))
        self._wait_until(ends_ns)
        self.clock.advance(ends_ns)
        ended_ns = self.clock.now_ns()
        self._journal.event(ended_ns, "busy", what)
        self._journal.tell("spans", self.name, what, began_ns, ended_ns, self.round)

    def tell_done(self, *fact: Any) -> None:
        """Record a fact about work that is done; if that work is cancelled, it was not."""
        self._journal.tell(*fact)

    def begin(self) -> None:
        """The run begins now: what it took to start the processes is no simulated time."""
        self.clock.begin()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Work and messages, in the with-block, that take no simulated time: evaluation and the end."""
        self.clock.pause()
        yield
        self.clock.resume()

    def safe_point(self, state: Any) -> None:
        """Between two pieces of work everything that outlives a wait is in `state`: a snapshot may be taken here."""
        self.state = state

    def kept(self) -> dict[str, Any]:
        """What `restore` needs to make an equal port, when nothing is in the outbox; to be written down at once."""
        asked = None if self._asked is None else replace(self._asked, tensors={}, coded={})
        rooms = {"departures": self._departures.kept(), "inbox": self._inbox.kept(), "journal": self._journal.kept()}
        return {"now_ns": self.now_ns, "asked": asked, **rooms} | {name: getattr(self, name) for name in _KEPT}

    def restore(self, kept: Mapping[str, Any], recorder: Recorder) -> None:
        """Go on from where `kept` was told, whatever has happened here, and tell `recorder` from now on."""
        for name in _KEPT:
            setattr(self, name, kept[name])
        self._asked, self._sequence, self.recorder = kept["asked"], Counter(self._sequence), recorder
        self.clock.advance(kept["now_ns"])
        self._departures.restore(kept["departures"])
        self._inbox.restore(kept["inbox"])
        self._journal.restore(kept["journal"], recorder)

    def post(self, by_ns: int | None = None) -> bool:
        """Let what was sent leave now; False if not all of it has left `by_ns`, when this actor is away."""
        now_ns, whole = self.clock.now_ns(), True
        lost: list[Message] = []
        departed: list[Departure] = []
        for departure in self._departures.leave(now_ns, self.clock.paused_ns, by_ns):
            departed.append(departure)
            for _ in range(departure.copies):
                self._carrier.post(departure.message.to, departure.frames)
            self._tell_sent(departure, now_ns)
            whole &= departure.is_whole
            if not departure.copies:
                self._never_arrives(departure)
                lost += [departure.message] * departure.is_whole
        if len(departed) > 1 and (burst := burst_of(departed)):
            self._journal.tell("bursts", self.name, departed[0].message.round, now_ns, *burst)
        for message in lost:
            if message.kind in wire.ANSWERS:
                self._answers_never(message.to, wire.INSTEAD.get(message.kind, message.kind), message.work_id)
        if not whole:
            self._departures.hang_up()
        return whole

    def cancel(self, to: str, work_id: int) -> None:
        """Let `to` stop this work: its answer is void unless it has left before it hears of that."""
        self.send(to, wire.CANCEL, work_id=work_id)
        self.post()
        hears_ns = self.clock.now_ns() + self._links.latency_ns(self.name, to)
        void = self._inbox.cancel(to, work_id, hears_ns if self.clock.waits_for_everybody else 0)
        if void is not None:
            self._refuse_void(*void)

    def heard_ns(self, cancellation: Message) -> int:
        """When this actor hears of a cancellation that it has just taken: a moment after it was sent."""
        self._void.add(cancellation.work_id)
        return self.asked_ns + self._links.latency_ns(cancellation.sender, self.name)

    def undo(self, work_id: int, from_ns: int) -> None:
        """Of what was done since the last work was taken, nothing was done at `from_ns` or later: it was cancelled."""
        self.clock.go_back(max(from_ns, self._taken_ns))
        self._departures.undo()
        self._journal.undo(from_ns)
        self._journal.event(self.clock.now_ns(), "cancelled", sequence=work_id)
        self._asked = None
        self._void.discard(work_id)

    def answers_never(self, question: Message) -> None:
        """Let who asked `question` know that no answer to it will ever come; its program is not told."""
        self._answers_never(question.sender, wire.ANSWER[question.kind], question.work_id)

    def finish(self) -> None:
        """Post the last words; the actor's program ends after this."""
        self._journal.release()
        self.post()

    def trace_as_of(self, now_ns: int) -> bytes:
        """The sha256 chain over this actor's simulated events up to and at `now_ns`, which may lie a little back.

        A process may have worked ahead of the moment as of which it is asked, but by no more than one piece of work.
        """
        return self._journal.as_of(now_ns)

    # what a carrier calls

    def deliver(self, message: Message, stamp: list[Any], sizes: Sizes) -> bool:
        """Put what came over the wire into the inbox; False if it is a duplicate or answers nothing asked.

        Raises BadMessage, and has changed nothing, when its stamp cannot be.
        """
        if message.kind not in self.takes:
            raise BadMessage(f"{self.name} does not take a {message.kind}")
        source = (message.sender, message.channel)
        if message.sequence <= self._seen.get(source, 0):
            return self._refuse(message, "duplicate", f"{message.kind} {message.sequence} came again", sizes)
        if message.coded:
            self._unpack(message)
        if self.inspect is not None:
            self.inspect(message)
        if self._inbox.is_void(message, stamp[0]):  # whenever it comes: nobody takes it, so it need not come in order
            self._seen[source] = message.sequence
            self._inbox.forgive(message.sender, wire.INSTEAD.get(message.kind, message.kind), message.work_id)
            self._inbox.forget_before(message.sender, message.work_id)
            self._refuse_void(message, sizes)
            return True
        flight = self._flight(message, stamp)  # may refuse it, so nothing must have changed before
        if message.kind == wire.PROMISE:
            return self._take_promise(message, sizes)
        if message.kind in wire.ANSWERS and not self._inbox.settle(message):
            return self._refuse(message, "unasked", f"{message.kind} {message.work_id} answers nothing", sizes)
        self._seen[source] = message.sequence
        departure_ns, paused_ns = stamp[0], stamp[1]
        if message.sender in wire.TAKEN_BY:  # the hub alone stops the clocks
            self.clock.paused_ns = max(self.clock.paused_ns, paused_ns)
        self._inbox.put(message, sizes, departure_ns, flight)
        return True

    def lose(self, actor: str) -> None:
        """`actor` has left the run and will never speak again; for each answer that it owes, a LOST is handed out."""
        self.lost.add(actor)
        for channel, work_id in self._inbox.forget(actor):
            self._unanswered[channel].append(Message(wire.LOST, actor, self.name, work_id=work_id))

    def silent(self) -> list[str]:
        """Who owes this actor what it waits for."""
        return self._inbox.silent(self._wanted)

    def tell_untaken(self) -> None:
        """Record what has come and was never taken, as when a run fails; the ledger would hold it for lost."""
        self._wanted = None
        while not self._inbox.is_empty():
            self._take()

    def may_go_on(self) -> bool:
        """Whether this actor's wait is over: there is a message that it may have, or it waits no longer."""
        return bool(self.lost and self._missed()) or self.may_take() or self._is_too_late() or self._waits_in_vain()

    def is_asked(self) -> bool:
        """Whether something is asked of this actor that takes no simulated time."""
        return self.when_asked is not None and any(self._inbox.next_due_ns(one) is not None for one in ASIDE)

    def works_in_vain(self) -> bool:
        """Whether what this actor works on is cancelled already, so that what comes of it will be undone."""
        return self._work_id in self._void

    def may_take(self) -> bool:
        """Whether the earliest message known so far can be handed out now."""
        horizon_ns = self._inbox.horizon_ns(self._wanted) if self.clock.waits_for_everybody else math.inf
        due_ns = self._inbox.next_due_ns(self._wanted, horizon_ns)
        if due_ns is None or (self._until_ns is not None and due_ns > self._until_ns):
            return False
        return self.clock.has_come(due_ns)

    def next_event_ns(self) -> int | None:
        """When, as far as is known, this actor's wait will be over."""
        due_ns = self._inbox.next_due_ns(self._wanted)
        times = [time_ns for time_ns in (due_ns, self._until_ns) if time_ns is not None]
        return min(times, default=self.clock.now_ns() if self._waits_in_vain() else None)

    def is_owed(self) -> bool:
        """Whether what this actor waits for is an answer that somebody owes it."""
        return self._inbox.is_owed(self._wanted)

    def waits_for(self) -> str:
        """How many have answered, and who still owes this actor what, in words."""
        return self._inbox.waits_for(self._wanted)

    # within

    def _say_beside(self, to: str, kind: str, round: int = 0, **facts: Any) -> None:
        """Say what is no part of what is simulated: it takes no time, is in no record, and leaves at once."""
        stamp = msgpack.packb((self.now_ns, 0, None, 0))
        header = wire.encode_header(Message(kind, self.name, to, round=round, facts=facts), self._run_id, [])
        self._carrier.post(to, [header, stamp])

    def _await(self, channel: str | None, until_ns: int | None, *, works: bool = False) -> Message | None:
        """The next message by a time; the wait for it is no wait of this actor if it `works` meanwhile."""
        self.post()
        began_ns = self.clock.now_ns()
        self._wanted, self._until_ns = channel, until_ns
        self._carrier.wait_for_mail(self)
        if missed := self._missed():
            self._until_ns = None
            return missed.popleft()
        if self._waits_in_vain():
            silent = f": {few(sorted(self._never_answer))} will never answer" if self._never_answer else ""
            raise RunFailed(self.name, f"waits for an answer, and nobody is left who will give one{silent}")
        self._until_ns = None
        if until_ns is not None and not self._has_message_by(until_ns):
            self.clock.advance(until_ns)
            if not works:
                self._journal.event(until_ns, "waited")
            return None
        message = self._take()
        now_ns = self.clock.now_ns()
        if message.channel == "data" and now_ns > began_ns and not works:
            self._journal.tell("spans", self.name, "wait", began_ns, now_ns, message.round)
        return message

    def _missed(self) -> deque[Message]:
        """What is handed out on the channel where this actor waits instead of answers that will not come."""
        waits_on = CHANNELS if self._wanted is None else (self._wanted,)
        return next((missed for one in waits_on if (missed := self._unanswered[one])), deque())

    def _has_message_by(self, until_ns: int) -> bool:
        due_ns = self._inbox.next_due_ns(self._wanted)
        return due_ns is not None and due_ns <= until_ns and self.clock.has_come(due_ns)

    def _is_too_late(self) -> bool:
        """Whether nothing can come any more within the time that this actor was ready to wait."""
        if self._until_ns is None or not self.clock.has_come(self._until_ns):
            return False
        if not self.clock.waits_for_everybody:
            return True
        due_ns = self._inbox.next_due_ns(self._wanted, self._until_ns)
        return due_ns is None and self._inbox.horizon_ns(self._wanted) >= self._until_ns

    def _waits_in_vain(self) -> bool:
        """Whether it waits for an answer without end, and nobody owes it one."""
        waits_for_ever = self._wanted is not None and self._until_ns is None
        return waits_for_ever and not self._inbox.can_answer(self._wanted)

    def _wait_until(self, ends_ns: int) -> None:
        """Wait for a simulated time, and answer in between what takes no simulated time."""
        self._carrier.wait_until(self, ends_ns)
        while self.clock.seconds_until(ends_ns):
            for channel in ASIDE:
                while self.when_asked and self._inbox.next_due_ns(channel) is not None:
                    self._wanted = channel
                    self.when_asked(self._take())
                    self.post()
            self._carrier.wait_until(self, ends_ns)

    def _promise(self, ends_ns: int) -> None:
        """Tell who waits for this actor's answer that it will not leave before `ends_ns`."""
        asked = self._asked
        if asked is not None and self.promises and self.clock.waits_for_everybody:
            self.send(asked.sender, wire.PROMISE, facts={"not_before_ns": ends_ns}, work_id=asked.work_id)
            self.post()

    def _take_promise(self, message: Message, sizes: Sizes) -> bool:
        never = message.facts.get("never")
        if never is not None:
            if (
                not isinstance(never, str)
                or never not in wire.ANSWERS
                or not self._inbox.forgive(message.sender, never, message.work_id)
            ):
                raise BadMessage(f"{message.sender} does not owe the {never!r:.40} that it will not give")
            self._seen[message.sender, message.channel] = message.sequence
            self._never_answer.add(message.sender)
            self._tell("received", message, sizes, self.clock.now_ns())
            return True
        not_before_ns = message.facts.get("not_before_ns")
        if type(not_before_ns) is not int or not 0 <= not_before_ns < 1 << 62:
            raise BadMessage(f"{message.sender} promises {not_before_ns!r:.40}, which is no time")
        self._seen[message.sender, message.channel] = message.sequence
        latency_ns = self._links.latency_ns(message.sender, self.name)
        self._inbox.promise(message.sender, message.work_id, not_before_ns, latency_ns)
        self._tell("received", message, sizes, self.clock.now_ns())
        return True

    def _flight(self, message: Message, stamp: list[Any]) -> Flight | None:
        """How a message of the method travels here. Raises BadMessage, naming it, for a stamp that cannot be."""
        if message.channel != "data":
            return None
        try:
            flight = Flight.from_list(stamp[2])
            begins_ns = self.clock.heard_ns(flight.first_byte_ns, self._inbox.settled_ns(message.sender))
        except BadMessage as problem:
            problem.message = message
            raise
        late_ns = begins_ns - flight.first_byte_ns
        return flight._replace(departure_ns=flight.departure_ns + late_ns) if late_ns else flight

    def _unpack(self, message: Message) -> None:
        """What the frames of a message hold. Raises BadMessage, naming it, for what this run does not know."""
        direction = self.codecs.between(message.sender, message.to) if message.channel == "data" else None
        for name, coded in message.coded.items():
            try:
                if direction is None:
                    raise BadMessage(f"nothing is encoded there, and it is by {coded.codec!r:.40}")
                message.tensors[name] = direction.unpacked(coded, message.tensors[name])
            except BadMessage as problem:
                refused = BadMessage(f"tensor {name!r:.40}: {problem}")
                refused.message = message
                raise refused from problem

    def _answers_never(self, to: str, kind: str, work_id: int) -> None:
        self._asked = None
        self.send(to, wire.PROMISE, facts={"never": kind}, work_id=work_id)
        self.post()

    def _refuse_void(self, message: Message, sizes: Sizes) -> None:
        self._refuse(message, "cancelled", f"{message.kind} {message.work_id} was cancelled before it left", sizes)

    def _never_arrives(self, departure: Departure) -> None:
        """Say that it is lost; nobody waits for what cannot come."""
        message = departure.message
        fact = (departure.lost, f"{message.kind} to {message.to}", sum(departure.sizes))
        self.recorder.tell("dropped", message.to, *fact, message.sender, message.channel, message.sequence)
        if message.kind in wire.ANSWER:
            self._inbox.forgive(message.to, wire.ANSWER[message.kind], message.work_id)
            self._never_answer.add(message.to)

    def _take(self) -> Message:
        arrival_ns, message, sizes = self._inbox.take(self._wanted)
        self.asked_ns = arrival_ns
        if message.channel == "data":
            self.clock.advance(arrival_ns)
            self.round, self._taken_ns = message.round, arrival_ns
            self._journal.release()
            charged = sizes[0] + sizes[1]
            self._journal.event(arrival_ns, "took", message.kind, message.sender, message.sequence, charged)
            if message.kind in wire.QUESTIONS:
                self._asked, self._work_id = message, message.work_id
                if self.cancels:
                    self._departures.mark()
                    self._journal.mark()
        self._tell("received", message, sizes, arrival_ns)
        return message

    def _refuse(self, message: Message, reason: str, detail: str, sizes: Sizes) -> bool:
        fact = (reason, detail, sum(sizes), message.sender, message.channel, message.sequence)
        self.recorder.tell("dropped", self.name, *fact)
        return False

    def _tell_sent(self, departure: Departure, now_ns: int) -> None:
        message, sizes = departure.message, departure.sizes
        if message.channel == "data":
            charged = sizes[0] + sizes[1]
            self._journal.event(now_ns, "sent", message.kind, message.to, message.sequence, charged)
        route = (message.sender, message.to, message.kind, message.channel, message.sequence)
        keeper = self._journal if message.channel == "data" else self.recorder
        keeper.tell("sent", *route, message.round, *sizes, now_ns)
        if message.coded and sizes[0]:
            spared = sum(coded.raw_bytes - message.tensors[name].numel() for name, coded in message.coded.items())
            share = sizes[0] / frame_sizes(departure.frames)[0]  # of it that left
            keeper.tell("uncoded", *route, message.round, sizes[0] + int(spared * share), now_ns)

    def _tell(self, table: str, message: Message, sizes: Sizes, at_ns: int) -> None:
        route = (message.sender, message.to, message.kind, message.channel, message.sequence)
        self.recorder.tell(table, *route, *sizes, at_ns)


def seconds(nanoseconds: int) -> float:
    """Simulated nanoseconds as seconds."""
    return nanoseconds / NANOSECONDS
