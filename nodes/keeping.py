"""Checkpoints: what each actor of a run is at one moment, as files, and how it goes on from there another day.

A server stops everybody between two pieces of work (`CHECKPOINT`); each says that it stands (`STANDS`) and writes down
its state and its port, and so does the server when all stand. Then nothing is on its way: whatever was sent lies in an
inbox. Then all go on (`GO_ON`). Peers, who are in step with nobody, do not stop: each writes itself down before the
same round of its own, and what crosses from one side to the other is accounted for (`pflsim.messages.crossing`); where
the host's time says when, they come to know which round that is (`pflsim.messages.common_round`). None of that takes
simulated time or is in a trace. Who is resumed joins as in a new run, but nobody records it; then it is what it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodes.kept_files import Files
from nodes.standstill import CHECKPOINT as TAKEN
from nodes.standstill import UNDER_WAY
from pflsim import kept
from pflsim.coding.direction import Coded
from pflsim.errors import RunFailed
from pflsim.messages.crossing import Crossed
from pflsim.messages.peer_port import PeerPort
from pflsim.messages.port import Port, Recorder
from pflsim.messages.wire import CHECKPOINT, GO_ON, STANDS, Message
from pflsim.timing.clock import Stopwatch
from pflsim.timing.fair_share import Flight
from pflsim.timing.presence import Moment

_OF_PORTS = (Message, Coded, Flight, Moment)


class Silent:
    """A recorder of what shall not be recorded."""

    def tell(self, *fact: Any) -> None:
        """Forget it."""

    def flush(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True)
class Keeper:
    """Writes the checkpoints of the actors of one process, and reads that from which a run is resumed."""

    files: Files
    every: int
    """After so many rounds each; 0 where the host's time says when."""
    recorder_of: Callable[[str], Recorder]
    """Where actors tell their facts, and what they have written."""
    states: Sequence[type]
    """What states of actors are made of."""
    resumed: int = 0
    """The round after which the run goes on; 0 for one that begins."""
    every_s: float = 0.0
    """When so many seconds of the host's have passed since the last one; 0 where rounds are counted."""
    since: Stopwatch = field(default_factory=Stopwatch)

    def is_due(self, round: int) -> bool:
        """Whether a checkpoint is to be taken after `round` rounds."""
        if round <= self.resumed:
            return False
        return round % self.every == 0 if self.every else self.since.seconds >= self.every_s

    def is_due_for(self, port: PeerPort, round: int) -> bool:
        """The same for one of peers, for all of whom it is to be the same round."""
        return self.is_due(round) if port.chosen is None else port.is_chosen(round)

    def keep(self, port: Port, round: int, state: Any) -> None:
        """Write down one actor, and tell it when that is done."""
        name, recorder = f"{port.name}.state", self.recorder_of(port.name)
        digest = self._write(port.name, round, name, {"state": state, "port": port.kept()})
        recorder.tell(TAKEN, round, {name: digest})
        recorder.flush()

    def keep_peer(self, port: PeerPort, round: int, state: Any) -> None:
        """Write down a peer, and what was under way to it as soon as that has come."""
        assert port.crossings is not None
        port.post()
        port.stand(round)
        self.keep(port, round, state)
        port.crossings.settle(round)

    def keep_under_way(self, name: str, round: int, crossed: list[Crossed]) -> None:
        """Write down what was under way to a peer."""
        file, recorder = f"{name}.crossed", self.recorder_of(name)
        recorder.tell(UNDER_WAY, round, {file: self._write(name, round, file, crossed)})
        recorder.flush()

    def restore(self, port: Port) -> Any:
        """The state of an actor when it was written down; its port is as it was then."""
        found = self._read(f"{port.name}.state")
        port.restore(found["port"], self.recorder_of(port.name))
        if isinstance(port, PeerPort):
            port.take_up(self._read(f"{port.name}.crossed"))
        return found["state"]

    def _write(self, actor: str, round: int, name: str, value: Any) -> str:
        try:
            with self.files.writing(round, name) as file:
                return kept.write(file, value)
        except TypeError as problem:
            raise RunFailed(actor, f"cannot be written into a checkpoint: {problem}") from problem

    def _read(self, name: str) -> Any:
        with self.files.reading(self.resumed, name) as file:
            return kept.read(file, (*_OF_PORTS, *self.states))


def take_checkpoint(port: Port, names: Sequence[str], keeper: Keeper, round: int, state: Any) -> None:
    """Stop all others, write down this actor when they stand, and let them go on."""
    with port.pause():
        for name in names:
            port.send(name, CHECKPOINT, round=round)
        for _ in names:
            port.recv("control")
        keeper.keep(port, round, state)
        keeper.since.start()
        let_go_on(port, names)


def let_go_on(port: Port, names: Sequence[str]) -> None:
    """Everybody stands; all go on."""
    for name in names:
        port.send(name, GO_ON)
    port.post()


def stand(port: Port, keeper: Keeper, checkpoint: Message, state: Any) -> None:
    """Stop here as the server wishes, write down this actor, and wait until all go on."""
    port.send(checkpoint.sender, STANDS)
    port.post()
    keeper.keep(port, checkpoint.round, state)
    port.recv("control")
