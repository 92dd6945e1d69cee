"""Timelines of on and off, asked for any moment in any order: drawn stretch by stretch, or laid down in a calendar."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from pflsim.timing.clock import LAST_NS

BLOCK = 256  # how many stretches of each state are drawn at once


class Timeline(Protocol):
    """Something that is on or off at every moment."""

    def stretch(self, at_ns: int) -> tuple[bool, int]:
        """Whether it is on at `at_ns`, and until when it stays so: LAST_NS or later if for ever."""


class Renewals:
    """On and off in turn, for lengths that are drawn: `lengths(rng, on, count)`, each at least 1 ns.

    It starts on with the probability `on_at_first`. The lengths are drawn in blocks, each from a stream of its own,
    `draws(block)`, and the ends kept, so that a look-up is a search among them and the first one for a late moment
    draws everything before it once: 105,000 stretches, a year of 5 minutes each, took 40 ms.
    """

    def __init__(
        self,
        on_at_first: float,
        lengths: Callable[[np.random.Generator, bool, int], list[int]],
        draws: Callable[[int], np.random.Generator],
    ) -> None:
        self._lengths, self._draws = lengths, draws
        self._on_at_first = on_at_first
        self._starts_on: bool | None = None  # drawn when first asked, as a study may have clients that never work
        self._ends_ns: list[int] = []

    def stretch(self, at_ns: int) -> tuple[bool, int]:
        """Whether it is on at `at_ns`, and until when it stays so."""
        while not self._ends_ns or self._ends_ns[-1] <= at_ns:
            self._draw()
        index = bisect_right(self._ends_ns, at_ns)
        return (index % 2 == 0) == self._starts_on, self._ends_ns[index]

    def _draw(self) -> None:
        rng = self._draws(len(self._ends_ns) // (2 * BLOCK))
        starts_on = bool(rng.random() < self._on_at_first)
        if self._starts_on is None:
            self._starts_on = starts_on
        first = self._lengths(rng, self._starts_on, BLOCK)
        second = self._lengths(rng, not self._starts_on, BLOCK)
        time_ns = self._ends_ns[-1] if self._ends_ns else 0
        for pair in zip(first, second, strict=True):
            for length_ns in pair:
                time_ns += length_ns
                self._ends_ns.append(time_ns)


class Calendar:
    """On in the stretches [from, to) that are given, ascending and apart; over again after `period_ns`, if that is."""

    def __init__(self, stretches: Sequence[tuple[int, int]], period_ns: int | None) -> None:
        joined: list[tuple[int, int]] = []
        for from_ns, to_ns in stretches:
            if joined and from_ns <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(to_ns, joined[-1][1])
            elif to_ns > from_ns:
                joined.append((from_ns, to_ns))
        self._period_ns = period_ns
        self._always = joined == [(0, period_ns or LAST_NS)]
        self._changes_ns = [moment_ns for stretch in joined for moment_ns in stretch]

    def stretch(self, at_ns: int) -> tuple[bool, int]:
        """Whether it is on at `at_ns`, and until when it stays so."""
        if self._always:
            return True, LAST_NS
        period_ns = self._period_ns
        days, moment_ns = divmod(at_ns, period_ns) if period_ns else (0, at_ns)
        index = bisect_right(self._changes_ns, moment_ns)
        on = index % 2 == 1
        if index < len(self._changes_ns):
            until_ns = self._changes_ns[index]
            if until_ns == period_ns and self._changes_ns[0] == 0:  # it stays on over the end of the day
                until_ns += self._changes_ns[1]
        elif period_ns is None:
            return on, LAST_NS
        else:
            until_ns = period_ns + self._changes_ns[0]
        return on, days * (period_ns or 0) + until_ns
