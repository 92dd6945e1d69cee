"""The port of a coordinator: beside it the arbiter answers what peers report, whatever the coordinator waits for."""

from collections.abc import Iterable, Sequence
from typing import Any

from pflsim.errors import BadMessage
from pflsim.messages import wire
from pflsim.messages.common_round import Chooser
from pflsim.messages.inbox import Sizes
from pflsim.messages.licence import Arbiter, Say
from pflsim.messages.port import Port, Recorder
from pflsim.messages.wire import Message

SAID_BEFORE = 1 << 32
"""A coordinator says less before a run is resumed, so that no two things that it says have one number."""


class CoordinatorPort(Port):
    """The coordinator's side of the world."""

    arbiter: Arbiter | None = None
    """None when all have finished: then nobody needs a licence any more."""
    chooser: Chooser | None = None
    """Chooses the rounds after which checkpoints are taken, where the host's time says when; else None."""
    peers: Sequence[str] = ()
    """Who is told who has left the run; nobody before all have joined."""

    def begin_again(self, recorder: Recorder) -> None:
        """What is said from now on is recorded beside what was in a run that is resumed now."""
        self.recorder, self._sequence["control"] = recorder, SAID_BEFORE

    def deliver(self, message: Message, stamp: list[Any], sizes: Sizes) -> bool:
        if message.kind == wire.ALIVE:
            return False
        if message.kind in (wire.DUE, wire.HERE):
            return self._choose(message)
        if message.kind == wire.HEARD:
            return self._note_heard(message)
        if message.kind != wire.WAITING:
            return super().deliver(message, stamp, sizes)
        source = (message.sender, message.channel)
        if message.sequence <= self._seen.get(source, 0):
            return self._refuse(message, "duplicate", f"{message.kind} {message.sequence} came again", sizes)
        if self.arbiter is not None and not self.arbiter.is_report(message.facts):
            raise BadMessage(f"{message.sender} reports what is no report ({message.facts!r:.80})")
        said = self.arbiter.take(message.sender, message.facts) if self.arbiter is not None else []
        self._seen[source] = message.sequence
        self._tell("received", message, sizes, self.clock.now_ns())
        self._tell_arbiters(said)
        return False  # nothing that the coordinator itself waits for

    def lose(self, actor: str) -> None:
        """The others hear of it, as of a simulated time that none of them has passed by a licence."""
        super().lose(actor)
        at_ns = self.arbiter.leave(actor) if self.arbiter is not None else 0
        for other in self.peers:
            if other not in self.lost:
                self._say_beside(other, wire.LEFT, actor=actor, at_ns=at_ns)

    def _note_heard(self, message: Message) -> bool:
        actor = message.facts.get("actor")
        if not isinstance(actor, str) or actor not in self.lost:
            raise BadMessage(f"{message.sender} has heard that {actor!r:.40} has left, which it has not")
        if self.arbiter is not None:
            self._tell_arbiters(self.arbiter.heard(message.sender, actor))
        return False

    def _tell_arbiters(self, said: Iterable[Say]) -> None:
        """Tell peers what the arbiter says."""
        for to, kind, until_ns in said:
            self.send(to, kind, facts={"until_ns": until_ns})
        self.post()

    def _choose(self, message: Message) -> bool:
        if self.chooser is None:
            raise BadMessage(f"{message.sender} says {message.kind}, and no checkpoints are taken by the host's time")
        word = self.chooser.take(message.sender, message.kind, message.round)
        if word is not None:
            for peer in self.chooser.peers:
                self._say_beside(peer, *word)
        return False
