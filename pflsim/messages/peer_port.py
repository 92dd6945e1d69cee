"""The port of a peer: others may speak to it unasked, so it asks who could, or an arbiter, before it goes on.

Under the virtual clock a message is handed out when nothing earlier can come any more: each neighbour has one in hand
here, or has said that it will be quiet until then, or the arbiter has given a licence (`pflsim.messages.licence`).
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pflsim.errors import BadMessage
from pflsim.messages import wire
from pflsim.messages.common_round import Chosen
from pflsim.messages.crossing import Crossed, Crossings
from pflsim.messages.departures import Departure
from pflsim.messages.inbox import Sizes
from pflsim.messages.licence import FAR_NS, Reports
from pflsim.messages.port import Carrier, Port, Recorder
from pflsim.messages.wire import COORDINATOR, Message
from pflsim.timing.clock import Clock
from pflsim.timing.fair_share import Flight
from pflsim.timing.faults import Faults
from pflsim.timing.links import Links

_LAST = (1 << 63) - 1
"""The number of the BYE that is said in the name of who is lost."""


class PeerPort(Port):
    """One peer's side of the world."""

    def __init__(
        self,
        name: str,
        run_id: bytes,
        clock: Clock,
        links: Links,
        carrier: Carrier,
        recorder: Any,
        faults: Faults,
        least_latency_ns: int,
    ) -> None:
        super().__init__(name, run_id, clock, links, carrier, recorder, faults)
        self.takes = wire.TAKEN_BY_PEER
        self.awaits = ""
        """What this peer waits for, in words; empty if it may go on waiting as long as anybody is at work."""
        self.is_under_way = False
        """Whether the run has begun for it."""
        self.has_finished = False
        """Whether it will say nothing more by itself."""
        self.crossings: Crossings | None = None
        """What is on its way at a checkpoint; None in a run that takes none."""
        self.chosen: Chosen | None = None
        """After which rounds checkpoints are taken, where the host's time says when; else None."""
        self._is_between_rounds = False
        self._too_early: defaultdict[str, deque[Crossed]] = defaultdict(deque)
        """By sender: answers to what this peer has not asked yet, since it was put back further, and what follows."""
        self._is_resumed = False
        self._comes_again: dict[str, int] = {}
        """Of the last checkpoint: what neighbours had sent after it and was here before."""
        self._reports = Reports(least_latency_ns)
        self._stop: tuple[Message, list[Any], Sizes] | None = None
        """That all have finished; it is taken when all that they have sent to this peer has come."""

    @property
    def place(self) -> tuple[str, str]:
        """The name of this peer's process, and where others can find it."""
        return self._carrier.place

    def meet(self, peer: str, process: str, endpoint: str) -> None:
        """Be ready to talk to `peer`, which lives in `process`."""
        self._carrier.meet(peer, process, endpoint)

    def listen_to(self, peer: str) -> None:
        """`peer` may send something at any time."""
        self._inbox.listen_to(peer)

    @property
    def all_sent(self) -> dict[str, int]:
        """How many messages of the method have left for whom since the run began."""
        return self._reports.all_sent

    def work_and_listen(self, work_ns: int, what: str = "compute") -> Iterator[Message]:
        """Simulated work, whose real part is done already; what comes in before its end is handed out meanwhile."""
        began_ns = self.clock.now_ns()
        ends_ns = began_ns + work_ns
        while (message := self._await("data", ends_ns, works=True)) is not None:
            yield message
        self._journal.event(self.clock.now_ns(), "busy", what)
        self._journal.tell("spans", self.name, what, began_ns, self.clock.now_ns(), self.round)

    def what_came_by(self, until_ns: int) -> Iterator[Message]:
        """What has come by a simulated time and was not taken, without waiting for it."""
        while (message := self._await("data", until_ns, works=True)) is not None:
            yield message

    def is_chosen(self, round: int) -> bool:
        """Whether a checkpoint is taken after `round`, which has just ended; waits while that is being decided."""
        assert self.chosen is not None
        if (due := self.chosen.between(round)) is not None:
            self._say_beside(COORDINATOR, *due)
        if self.chosen.is_held:
            self._is_between_rounds, self._wanted = True, "control"
            self.awaits = "the choice of the round after which all are written down"
            self._carrier.wait_for_mail(self)
            self._is_between_rounds, self.awaits = False, ""
        return self.chosen.is_after(round)

    def tell_of_life(self) -> None:
        """Let the coordinator know that this peer is there, if the run has begun."""
        if self.is_under_way:
            self._say_beside(COORDINATOR, wire.ALIVE)

    def stand(self, round: int) -> None:
        """This peer is about to be written down; its neighbours learn of that, in no time and beside all records."""
        assert self.crossings is not None
        neighbours = self._inbox.neighbours
        self._comes_again = self.crossings.cut(round, neighbours)
        for other in neighbours:
            self._say_beside(other, wire.MARK, round)

    def kept(self) -> dict[str, Any]:
        too_early = [crossed for early in self._too_early.values() for crossed in early]
        return super().kept() | {"comes_again": self._comes_again, "too_early": too_early}

    def restore(self, kept: Mapping[str, Any], recorder: Recorder) -> None:
        """What has been said about the beginning of this run stays said: on all but the channel of the method."""
        said = {source: last for source, last in self._seen.items() if source[1] != "data"}
        super().restore(kept, recorder)
        self._seen = {source: last for source, last in self._seen.items() if source[1] == "data"} | said
        self._is_resumed = True
        assert self.crossings is not None
        self.crossings.resume(kept["comes_again"])
        self._put_by(kept["too_early"])

    def take_up(self, under_way: Iterable[Crossed]) -> None:
        """Take in what was under way when this peer was written down."""
        self._put_by(under_way)
        for sender in sorted(self._too_early):
            self._take_what_is_due(sender)

    def expect(self, sender: str, kind: str, work_id: int = 0) -> None:
        super().expect(sender, kind, work_id)
        self._take_what_is_due(sender)

    # what a carrier calls

    def deliver(self, message: Message, stamp: list[Any], sizes: Sizes) -> bool:
        if message.kind in (wire.TELL, wire.LICENCE):
            return self._take_word_of_the_arbiter(message, sizes)
        if message.sender in self.lost:
            raise BadMessage(f"{message.sender} has left the run")
        if message.kind == wire.LEFT:
            return self._take_loss(message)
        message.left_ns = stamp[0]
        if message.kind == wire.STOP:
            if message.sender != COORDINATOR:
                raise BadMessage(f"{message.sender} says STOP, which is for the coordinator to say")
            self._stop = message, stamp, sizes
            return self._stop_in_turn()
        if message.kind == wire.MARK:
            return self._take_mark(message)
        if message.kind in (wire.WHERE, wire.CUT):
            return self._take_choice(message)
        if message.channel == "data":
            self._reports.came(message.sender, stamp[0])
            if self.crossings is not None and not self.crossings.takes(message, stamp, sizes):
                return self._stop_in_turn()
        if self._is_resumed and message.channel == "data":
            self._put_by([(message, stamp, sizes)])
            taken = self._take_what_is_due(message.sender)
        else:
            taken = self._take_in(message, stamp, sizes)
        return self._stop_in_turn() or taken

    def may_go_on(self) -> bool:
        if self._is_between_rounds and self.chosen is not None:
            return not self.chosen.is_held
        return super().may_go_on()

    def next_event_ns(self) -> int | None:
        if self._is_between_rounds:
            return self.clock.now_ns() if self.may_go_on() else None
        return super().next_event_ns()

    def report(self, *, wants: bool = True) -> bool:
        """Tell the arbiter when this peer could go on, if that is news that somebody waits for; whether it was.

        This peer `wants` a licence then, if it waits for something to take, or goes on wanting it if it did.
        """
        next_ns, can_want = self._could_go_on_ns()
        return self._report(next_ns, wants=can_want and (wants or self._reports.want))

    def owes_a_report(self) -> bool:
        """Whether the arbiter has asked for a report that may be due."""
        return self._reports.are_asked()

    def is_owed(self) -> bool:
        return bool(self.awaits) or super().is_owed()

    def waits_for(self) -> str:
        return f"waiting for {self.awaits}" if self.awaits else super().waits_for()

    def lose(self, actor: str, at_ns: int = 0) -> None:
        """`actor` has left the run; this peer's program learns that at a simulated time, by a BYE in its name."""
        self.lost.add(actor)
        self._inbox.forget(actor)
        self._carrier.part(actor)
        if actor in self._inbox.neighbours:
            self._inbox.quieten(actor, FAR_NS)
            now_ns = max(at_ns, self._inbox.taken_ns, self.clock.now_ns())
            flight = Flight(now_ns, 0, math.inf, 1, ((1.0, 1.0),))
            self._inbox.put(Message(wire.BYE, actor, self.name, _LAST, facts={"lost": True}), (0, 0, 0), now_ns, flight)

    # within

    def _take_loss(self, message: Message) -> bool:
        actor, at_ns = message.facts.get("actor"), message.facts.get("at_ns")
        if message.sender != COORDINATOR or not isinstance(actor, str) or type(at_ns) is not int:
            raise BadMessage(f"{message.sender} says that {actor!r:.40} has left, which a coordinator says of somebody")
        if actor not in self.lost:
            self.lose(actor, at_ns)
            self._report_at_once()
            self._say_beside(COORDINATOR, wire.HEARD, actor=actor)
        self._stop_in_turn()
        return True

    def _take_mark(self, message: Message) -> bool:
        if self.crossings is None:
            raise BadMessage(f"{message.sender} marks a checkpoint, and none are taken")
        self.crossings.mark(message.sender, message.round)
        return False

    def _take_choice(self, message: Message) -> bool:
        if self.chosen is None or message.sender != COORDINATOR:
            raise BadMessage(
                f"{message.sender} says {message.kind}, which only a coordinator says, and not in each run"
            )
        if message.kind == wire.WHERE:
            self._say_beside(COORDINATOR, *self.chosen.asked(has_finished=self.has_finished))
            return False
        self.chosen.told(message.round)
        return True

    def _put_by(self, early: Iterable[Crossed]) -> None:
        for crossed in early:
            self._too_early[crossed[0].sender].append(crossed)

    def _take_what_is_due(self, sender: str) -> bool:
        """Take in what came too early, up to an answer to what has not been asked yet."""
        early, taken = self._too_early[sender], False
        while early:
            message = early[0][0]
            comes_again = message.sequence <= self._seen.get((sender, message.channel), 0)
            if message.kind in wire.ANSWERS and not comes_again and not self._inbox.is_next_answer(message):
                break
            taken |= self._take_in(*early.popleft())
        return taken

    def _take_in(self, message: Message, stamp: list[Any], sizes: Sizes) -> bool:
        taken = super().deliver(message, stamp, sizes)
        if taken and stamp[3]:
            latency_ns = self._links.latency_ns(message.sender, self.name)
            self._inbox.quieten(message.sender, stamp[3] + latency_ns)
        return taken

    def _could_go_on_ns(self) -> tuple[int, bool]:
        """When this peer, which waits, could next act, as far as it knows; and whether a licence would let it."""
        if self._wanted not in (None, "data"):  # it waits for the word to begin, or that all have finished
            return FAR_NS if self.has_finished else self.clock.now_ns(), False
        next_ns = self.next_event_ns()
        return (FAR_NS, False) if next_ns is None else (max(next_ns, self.clock.now_ns()), True)

    def _report_at_once(self) -> None:
        """Tell the arbiter all that is new."""
        next_ns, can_want = self._could_go_on_ns()
        self._report(next_ns, wants=can_want and self._reports.want, asked=True)

    def _promise(self, ends_ns: int) -> None:
        self._report(ends_ns, wants=False)

    def _report(self, next_ns: int, *, wants: bool, asked: bool = False) -> bool:
        facts = self._reports.due(next_ns, wants, asked=asked) if self.clock.waits_for_everybody else None
        if facts is not None:
            self.send(COORDINATOR, wire.WAITING, facts=facts)
            self.post()
        return facts is not None

    def _stop_in_turn(self) -> bool:
        if self._stop is None or not self._reports.have_come(self._stop[0].facts.get("come", {}), self.lost):
            return False
        (stop, stamp, sizes), self._stop = self._stop, None
        self._inbox.licensed_ns = FAR_NS
        return super().deliver(stop, stamp, sizes)

    def _take_word_of_the_arbiter(self, message: Message, sizes: Sizes) -> bool:
        source = (message.sender, message.channel)
        if message.sequence <= self._seen.get(source, 0):
            return self._refuse(message, "duplicate", f"{message.kind} {message.sequence} came again", sizes)
        until_ns = message.facts.get("until_ns")
        if message.sender != COORDINATOR or type(until_ns) is not int:
            raise BadMessage(
                f"a {message.kind} of {message.sender} says {until_ns!r:.40}, which is no time of the arbiter"
            )
        self._seen[source] = message.sequence
        if message.kind == wire.TELL:
            self._reports.asked_until_ns = max(self._reports.asked_until_ns, until_ns)
        else:
            self._inbox.licensed_ns = max(self._inbox.licensed_ns, until_ns)
            self._reports.was_licensed(until_ns)
        self._tell("received", message, sizes, self.clock.now_ns())
        return True

    def _tell(self, table: str, message: Message, sizes: Sizes, at_ns: int) -> None:
        if message.sequence != _LAST:  # nobody has sent that
            super()._tell(table, message, sizes, at_ns)

    def _tell_sent(self, departure: Departure, now_ns: int) -> None:
        super()._tell_sent(departure, now_ns)
        if departure.message.channel == "data" and departure.copies:
            self._reports.sent(departure.message.to, now_ns, departure.copies)

    def _waits_in_vain(self) -> bool:
        return False  # somebody may always speak
