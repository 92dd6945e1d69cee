"""What processes tell, sorted into what was before a checkpoint and what came after it.

An actor that is written down tells so, between what it told before and what it tells later. Facts of several processes
come in any order; those of one that stands already are held back until all stand.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Fact = tuple[Any, ...]
CHECKPOINT = "checkpoint"


class Standstill:
    """Knows which of the actors of which processes stand; `actors` is by process."""

    def __init__(self, actors: Mapping[str, Sequence[str]]) -> None:
        self._moving = {process: set(names) for process, names in actors.items()}
        self._actors = actors
        self._digests: dict[str, str] = {}
        self._held: list[tuple[str, Fact]] = []

    def sorted(self, process: str, fact: Fact) -> Iterator[Fact]:
        """What may be recorded now that `process` tells `fact`.

        Where all actors stand there is (CHECKPOINT, round, {actor: digest of its file}).
        """
        if fact[:1] == ("events",) and "died" in fact[2:3]:  # then they will never all stand
            yield from self.released()
        moving = self._moving.get(process)
        if moving is None:
            yield fact
        elif not moving:
            self._held.append((process, fact))
        elif fact[:1] != (CHECKPOINT,):
            yield fact
        else:
            _, actor, round, digest = fact
            moving.discard(actor)
            self._digests[actor] = digest
            if not any(self._moving.values()):
                yield CHECKPOINT, round, self._digests
                yield from self.released()

    def released(self) -> Iterator[Fact]:
        """What was held back, as if it came now, when all stand or never will."""
        held, self._held, self._digests = self._held, [], {}
        self._moving = {process: set(names) for process, names in self._actors.items()}
        for process, fact in held:
            yield from self.sorted(process, fact)
