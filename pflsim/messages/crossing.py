"""What crosses a checkpoint of peers, each of which is written down on its own, at the beginning of a round of its own.

A peer that is written down tells its neighbours so, by a mark behind all that it had sent them before. What a neighbour
had sent before, and what comes here after this peer was written down, is *under way*: it is written down too, until the
neighbour's mark comes. What a neighbour sends after its mark, and what is here before this peer is written down, *comes
again* when the run is resumed, bit for bit: it is passed over. (K. M. Chandy, L. Lamport, ACM TOCS 3(1), 1985, where no
channel needs the second case.)
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pflsim.messages.inbox import Sizes
from pflsim.messages.wire import Message

Crossed = tuple[Message, list[Any], Sizes]
"""A message of the method as it came, its stamp and its sizes."""


class Crossings:
    """Keeps account of what comes to one peer, by the rounds after which checkpoints are taken."""

    def __init__(self, on_all_marked: Callable[[int, list[Crossed]], None]) -> None:
        """`on_all_marked` is told the round of a checkpoint and what was under way there when all of it has come."""
        self._on_all_marked = on_all_marked
        self._comes_again: Counter[str] = Counter()
        self._since: defaultdict[str, dict[int, int]] = defaultdict(dict)
        """By neighbour, by the round of a mark that came too early: how many messages have come since."""
        self._unmarked: dict[int, set[str]] = {}
        """By round: the neighbours whose mark has not come."""
        self._under_way: dict[int, list[Crossed]] = {}

    def cut(self, round: int, neighbours: Iterable[str]) -> dict[str, int]:
        """This peer is written down now; how many messages of whom come again."""
        others = set(neighbours)
        early = {other: self._since[other].pop(round) for other in sorted(others) if round in self._since[other]}
        self._unmarked[round], self._under_way[round] = others - early.keys(), []
        return early

    def settle(self, round: int) -> None:
        """Tell what was under way, if all of it has come."""
        if not self._unmarked[round]:
            del self._unmarked[round]
            self._on_all_marked(round, self._under_way.pop(round))

    def mark(self, sender: str, round: int) -> None:
        """`sender` was written down after all that has come of it."""
        if sender in self._unmarked.get(round, ()):
            self._unmarked[round].discard(sender)
            self.settle(round)
        else:
            self._since[sender][round] = 0

    def resume(self, comes_again: Mapping[str, int]) -> None:
        """So many messages of whom are here already."""
        self._comes_again = Counter(comes_again)

    def takes(self, message: Message, stamp: list[Any], sizes: Sizes) -> bool:
        """Whether this message of the method is news; what is not is passed over."""
        sender = message.sender
        for round in self._since[sender]:
            self._since[sender][round] += 1
        if self._comes_again[sender]:
            self._comes_again[sender] -= 1
            return False
        for round, unmarked in self._unmarked.items():
            if sender in unmarked:
                as_it_came = replace(message, tensors=dict(message.tensors))
                self._under_way[round].append((as_it_came, stamp, sizes))
        return True
