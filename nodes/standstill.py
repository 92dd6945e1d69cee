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


class Standstill:
    """Knows which of these `names` stand; what others tell passes."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._moving = frozenset(names), set(names)
        self._files: dict[str, str] = {}
        self._held: list[tuple[str, Fact]] = []

    def sorted(self, name: str, fact: Fact) -> Iterator[Fact]:
        """What may be told on now that `name` tells `fact`.

        (CHECKPOINT, round, {file: digest}) says that `name` stands and has written these files; where all stand it is
        told on once, with the files of all.
        """
        if fact[:1] == ("events",) and "died" in fact[2:3]:  # then they will never all stand
            yield from self.released()
        if name not in self._names or fact[:1] == (UNDER_WAY,):
            yield fact
        elif name not in self._moving:
            self._held.append((name, fact))
        elif fact[:1] != (CHECKPOINT,):
            yield fact
        else:
            _, round, files = fact
            self._moving.discard(name)
            self._files |= files
            if not self._moving:
                yield CHECKPOINT, round, self._files
                yield from self.released()

    def released(self) -> Iterator[Fact]:
        """What was held back, as if it came now, when all stand or never will."""
        held, self._held, self._files = self._held, [], {}
        self._moving = set(self._names)
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
