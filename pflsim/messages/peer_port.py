"""The port of a peer: others may speak to it unasked, so it asks who could, or an arbiter, before it goes on.

Under the virtual clock a message is handed out when nothing earlier can come any more: each neighbour has one in hand
here, or has said that it will be quiet until then, or the arbiter has given a licence (`pflsim.messages.licence`).
"""

from collections.abc import Iterator
from typing import Any

from pflsim.errors import BadMessage
from pflsim.messages import wire
from pflsim.messages.departures import Departure
from pflsim.messages.inbox import Sizes
from pflsim.messages.licence import FAR_NS, Reports
from pflsim.messages.port import Carrier, Port
from pflsim.messages.wire import COORDINATOR, Message
from pflsim.timing.clock import Clock
from pflsim.timing.faults import Faults
from pflsim.timing.links import Links


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
        self.has_finished = False
        """Whether it will say nothing more by itself."""
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

    # what a carrier calls

    def deliver(self, message: Message, stamp: list[Any], sizes: Sizes) -> bool:
        if message.kind in (wire.TELL, wire.LICENCE):
            return self._take_word_of_the_arbiter(message, sizes)
        message.left_ns = stamp[0]
        if message.kind == wire.STOP:
            if message.sender != COORDINATOR:
                raise BadMessage(f"{message.sender} says STOP, which is for the coordinator to say")
            self._stop = message, stamp, sizes
            return self._stop_in_turn()
        if message.channel == "data":
            self._reports.came(message.sender, stamp[0])
        taken = super().deliver(message, stamp, sizes)
        if taken and stamp[3]:
            latency_ns = self._links.latency_ns(message.sender, self.name)
            self._inbox.quieten(message.sender, stamp[3] + latency_ns)
        return self._stop_in_turn() or taken

    def report(self, *, wants: bool = True) -> bool:
        """Tell the arbiter when this peer could go on, if that is news that somebody waits for; whether it was.

        This peer `wants` a licence then, if it waits for something to take, or goes on wanting it if it did.
        """
        if self._wanted not in (None, "data"):  # it waits for the word to begin, or that all have finished
            return self._report(FAR_NS if self.has_finished else self.clock.now_ns(), wants=False)
        next_ns = self.next_event_ns()
        if next_ns is None:
            return self._report(FAR_NS, wants=False)
        return self._report(max(next_ns, self.clock.now_ns()), wants=wants or self._reports.want)

    def owes_a_report(self) -> bool:
        """Whether the arbiter has asked for a report that may be due."""
        return self._reports.are_asked()

    def is_owed(self) -> bool:
        return bool(self.awaits) or super().is_owed()

    def waits_for(self) -> str:
        return f"waiting for {self.awaits}" if self.awaits else super().waits_for()

    # within

    def _promise(self, ends_ns: int) -> None:
        self._report(ends_ns, wants=False)

    def _report(self, next_ns: int, *, wants: bool) -> bool:
        facts = self._reports.due(next_ns, wants) if self.clock.waits_for_everybody else None
        if facts is not None:
            self.send(COORDINATOR, wire.WAITING, facts=facts)
            self.post()
        return facts is not None

    def _stop_in_turn(self) -> bool:
        if self._stop is None or not self._reports.have_come(self._stop[0].facts.get("come", {})):
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

    def _tell_sent(self, departure: Departure, now_ns: int) -> None:
        super()._tell_sent(departure, now_ns)
        if departure.message.channel == "data" and departure.copies:
            self._reports.sent(departure.message.to, now_ns, departure.copies)

    def _waits_in_vain(self) -> bool:
        return False  # somebody may always speak
