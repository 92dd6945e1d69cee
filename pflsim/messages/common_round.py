"""After which round a checkpoint of peers is taken, when the host's time says that one is due: one nobody has ended.

Peers are in step with nobody, so the coordinator asks all of them where they are. Who has been asked ends the round at
which it is and begins no other until it is told which was chosen: the one at which the furthest is. All answer as soon
as they are asked, whatever they do or wait for, so nobody who is held waits for somebody who is. That costs host time
and no simulated time, and nothing of it is recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pflsim.errors import BadMessage
from pflsim.messages.wire import CUT, DUE, HERE, WHERE
from pflsim.timing.clock import Stopwatch

FAR = 1 << 62
"""Where those are who have finished: others never get there."""

Word = tuple[str, int]
"""A kind of message, and its round."""


@dataclass
class Chooser:
    """The coordinator's side: asks `peers`, one time after the other, and chooses."""

    peers: Sequence[str]
    _chosen: int = 0
    """What was chosen last; 0 before the first time."""
    _here: dict[str, int] | None = None
    """How many rounds those have ended who have answered; None while nobody is asked."""

    def take(self, sender: str, kind: str, round: int) -> Word | None:
        """What all peers are told, now that `sender` has said that (DUE with what it knows as chosen last, or HERE)."""
        if kind == DUE:
            if self._here is not None or round != self._chosen:
                return None  # another has said it before
            self._here = {}
            return WHERE, 0
        if self._here is None or sender in self._here or round > FAR:
            raise BadMessage(f"{sender} says that it has ended {round} rounds, and was not asked")
        self._here[sender] = round
        if len(self._here) < len(self.peers):
            return None
        self._chosen, self._here = max(self._here.values()) + 1, None
        return CUT, self._chosen


@dataclass
class Chosen:
    """A peer's side: when the next checkpoint is due, and after which rounds they are taken."""

    every_s: float
    ended: int
    """How many rounds this peer had ended when it was last between two."""
    is_held: bool = False
    """Whether it must not begin a further one."""
    _rounds: set[int] = field(default_factory=set)
    _last: int = 0
    _since: Stopwatch = field(default_factory=Stopwatch)
    _has_said: bool = False

    def between(self, ended: int) -> Word | None:
        """This peer has ended so many rounds; what the coordinator is told then, if a checkpoint is due."""
        self.ended = ended
        if self._has_said or self._since.seconds < self.every_s:
            return None
        self._has_said = True
        return DUE, self._last

    def asked(self, *, has_finished: bool) -> Word:
        """What the coordinator is answered when it asks where this peer is."""
        self.is_held = True
        return HERE, FAR if has_finished else self.ended

    def told(self, round: int) -> None:
        """This one was chosen."""
        self._rounds.add(round)
        self._last, self.is_held, self._has_said = round, False, False
        self._since.start()

    def is_after(self, round: int) -> bool:
        """Whether a checkpoint is taken after `round`."""
        return round in self._rounds
