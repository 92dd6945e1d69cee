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
        self._steps: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)

    def done(self, facts: Iterable[Fact], wall_s: float) -> list[Fact]:
        """The rounds that these facts end, `wall_s` seconds after the first one began."""
        ended: list[Fact] = []
        for fact in facts:
            if fact[:1] == ("steps",) and len(fact) == 5:
                _, round, client, start_ns, end_ns = fact
                steps = self._steps[round]
                steps[client] = start_ns, end_ns
                if len(steps) == self.peers:
                    ended.append(_round(round, self._steps.pop(round), wall_s))
        return ended


def _round(round: int, steps: dict[int, tuple[int, int]], wall_s: float) -> Fact:
    start_ns, end_ns = min(start for start, _ in steps.values()), max(end for _, end in steps.values())
    return ("rounds", round, start_ns, end_ns, wall_s, json.dumps(sorted(steps)), len(steps), 0, 0)
