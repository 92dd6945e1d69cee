"""When a round of peers is done: each tells its own steps; a round lasts from the first's start to the last's end."""

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Fact = tuple[Any, ...]


class PeerRounds:
    """Makes the `rounds` of a record out of its `steps`, as soon as all of `peers` have done a round."""

    def __init__(self) -> None:
        self.peers = 0
        self._lost: set[int] = set()
        self._steps: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)

    def done(self, facts: Iterable[Fact], wall_s: float) -> list[Fact]:
        """The rounds that these facts end, `wall_s` seconds after the first one began."""
        ended: list[Fact] = []
        for fact in facts:
            if fact[:1] == ("steps",) and len(fact) == 5:
                _, round, client, start_ns, end_ns = fact
                steps = self._steps[round]
                steps[client] = start_ns, end_ns
                ended += self._ended([round], wall_s)
        return ended

    def lose(self, client: int, wall_s: float) -> list[Fact]:
        """The rounds that end as this peer will do no further one: those in which the others have done theirs."""
        self._lost.add(client)
        return self._ended(sorted(self._steps), wall_s)

    def _ended(self, rounds: Iterable[int], wall_s: float) -> list[Fact]:
        stay = self.peers - len(self._lost)
        done = [round for round in rounds if len(self._steps[round].keys() - self._lost) == stay > 0]
        return [_round(round, self._steps.pop(round), wall_s) for round in done]


def _round(round: int, steps: dict[int, tuple[int, int]], wall_s: float) -> Fact:
    start_ns, end_ns = min(start for start, _ in steps.values()), max(end for _, end in steps.values())
    return ("rounds", round, start_ns, end_ns, wall_s, json.dumps(sorted(steps)), len(steps), 0, 0)
