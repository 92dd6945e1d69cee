"""What many tell, sorted into what was before a checkpoint and what came after it.

Whoever is written down tells so, between what it told before and what it tells later. Facts of several come in any
order; those of one that stands already are held back until all stand. It is done twice: by each process among its
actors, and by the recorder among the processes.
"""

from collections.abc import Collection, Iterator
from typing import Any

from pflsim.messages.journal import Recorder

Fact = tuple[Any, ...]
CHECKPOINT, UNDER_WAY = "checkpoint", "under way"
LAST_WORDS = ("died",), ("finished",)
"""Events after which nobody waits for the others to stand."""


class Standstill:
    """Knows which of these `names` stand; what others tell passes."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._moving = frozenset(names), set(names)
        self._files: dict[str, str] = {}
        self._rounds: set[int] = set()
        self._is_over = False
        self._held: list[tuple[str, Fact]] = []

    def sorted(self, name: str, fact: Fact) -> Iterator[Fact]:
        """What may be told on now that `name` tells `fact`.

        (CHECKPOINT, round, {file: digest}) says that `name` stands and has written these files; where all stand it is
        told on once, with the files of all.
        """
        if fact[:1] == ("events",) and fact[2:3] in LAST_WORDS:  # then they will never all stand
            yield from self.given_up()
        if self._is_over and fact[:1] == (CHECKPOINT,):
            return
        if name not in self._names or fact[:1] == (UNDER_WAY,):
            yield fact
        elif name not in self._moving:
            self._held.append((name, fact))
        elif fact[:1] != (CHECKPOINT,):
            yield fact
        else:
            _, round, files = fact
            self._moving.discard(name)
            self._rounds.add(round)
            self._files |= files
            if not self._moving:
                if len(self._rounds) == 1:  # who names another round has written nothing that belongs to the others'
                    yield CHECKPOINT, round, self._files
                yield from self._released()

    def given_up(self) -> Iterator[Fact]:
        """What was held back for all to stand, when they never will; from now on everything passes."""
        held, self._held = self._held, []
        self._names, self._is_over = frozenset(), True
        yield from (fact for _, fact in held if fact[:1] != (CHECKPOINT,))

    def _released(self) -> Iterator[Fact]:
        """What was held back, as if it came now."""
        held, self._held, self._files = self._held, [], {}
        self._moving, self._rounds = set(self._names), set()
        for name, fact in held:
            yield from self.sorted(name, fact)


class ActorsRecorder:
    """The recorder of one of the actors of a process that stand together."""

    def __init__(self, name: str, standstill: Standstill, facts: Recorder) -> None:
        self._name, self._standstill, self._facts = name, standstill, facts

    def tell(self, *fact: Any) -> None:
        """Tell it, as soon as it may be told."""
        for told in self._standstill.sorted(self._name, fact):
            self._facts.tell(*told)

    def flush(self) -> None:
        """Let the facts told so far be seen."""
        self._facts.flush()
