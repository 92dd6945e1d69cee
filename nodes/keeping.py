"""Checkpoints: what each actor of a run is at one moment, as files, and how it goes on from there another day.

The hub stops everybody between two pieces of work (`CHECKPOINT`); each says that it stands (`STANDS`) and writes down
its state and its port, and so does the hub when all stand. Then nothing is on its way: whatever was sent lies in an
inbox. Then all go on (`GO_ON`). None of that takes simulated time or is in a trace. Who is resumed joins as in a new
run, but nobody records it; then it is what it was where it stood, and waits for the same word.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pflsim import kept
from pflsim.coding.direction import Coded
from pflsim.errors import RunFailed
from pflsim.messages.port import Port, Recorder
from pflsim.messages.wire import CHECKPOINT, GO_ON, STANDS, Message
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

    folder: Path
    every: int
    """After so many rounds each."""
    recorder: Recorder
    """Where resumed actors tell their facts, and all what they have written."""
    states: Sequence[type]
    """What states of actors are made of."""
    resumed: int = 0
    """The round after which the run goes on; 0 for one that begins."""

    def is_due(self, round: int) -> bool:
        """Whether a checkpoint is to be taken after `round` rounds."""
        return round > self.resumed and round % self.every == 0

    def keep(self, port: Port, round: int, state: Any) -> None:
        """Write down one actor, and tell it when that is on the disk."""
        place = file_of(self.folder, round, port.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_suffix(".unfinished")
        try:
            with unfinished.open("wb") as file:
                digest = kept.write(file, {"state": state, "port": port.kept()})
                file.flush()
                os.fsync(file.fileno())
        except TypeError as problem:
            raise RunFailed(port.name, f"cannot be written into a checkpoint: {problem}") from problem
        unfinished.replace(place)
        self.recorder.tell("checkpoint", port.name, round, digest)
        self.recorder.flush()

    def restore(self, port: Port) -> Any:
        """The state of an actor where it stood; its port is as it was there."""
        with file_of(self.folder, self.resumed, port.name).open("rb") as file:
            found = kept.read(file, (*_OF_PORTS, *self.states))
        port.restore(found["port"], self.recorder)
        return found["state"]


def take_checkpoint(port: Port, names: Sequence[str], keeper: Keeper, round: int, state: Any) -> None:
    """Stop all others, write down this actor when they stand, and let them go on."""
    with port.pause():
        for name in names:
            port.send(name, CHECKPOINT, round=round)
        for _ in names:
            port.recv("control")
        keeper.keep(port, round, state)
        let_go_on(port, names)


def let_go_on(port: Port, names: Sequence[str]) -> None:
    """Everybody stands; all go on."""
    for name in names:
        port.send(name, GO_ON)
    port.post()


def stand(port: Port, keeper: Keeper, checkpoint: Message, state: Any) -> None:
    """Stop here as the hub wishes, write down this actor, and wait until all go on."""
    port.send(checkpoint.sender, STANDS)
    port.post()
    keeper.keep(port, checkpoint.round, state)
    port.recv("control")


def file_of(folder: Path, round: int, actor: str) -> Path:
    """Where an actor is written down."""
    return folder / f"{round:06d}" / f"{actor}.state"
