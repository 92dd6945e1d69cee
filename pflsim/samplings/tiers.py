"""Tiers of speed: each round is for clients of one tier, so that no fast client waits for a slow one.

Chai, Ali, Zawad, Truex, Anwar, Baracaldo, Zhou, Ludwig, Yan, Cheng: TiFL: A Tier-based Federated Learning System,
HPDC 2020, with its static selection. The paper measures latencies and cuts their histogram into tiers; here tiers are
equally large, by the predicted seconds of a visit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pflsim.errors import DescriptionError
from pflsim.sampling import Population, Sampling, Strata, cut, some


@dataclass(frozen=True)
class Tiers(Sampling):
    """In each round a tier is drawn, and the cohort uniformly inside it; a cohort is at most its whole tier."""

    tiers: int = 5
    chances: tuple[float, ...] | None = None  # of each tier, the fastest first; None: all alike

    def check(self, clients: int, count: int) -> None:
        """Raises DescriptionError for tiers that would be empty, and for chances that are none."""
        if not 1 <= self.tiers <= clients:
            expected = f"must be 1 to {clients}, the number of clients"
            raise DescriptionError("schedule.sampling.tiers", self.tiers, expected)
        if self.chances is None:
            return
        sound = len(self.chances) == self.tiers and all(0 <= chance <= 1 for chance in self.chances)
        if not sound or not math.isclose(sum(self.chances), 1, abs_tol=1e-6):
            expected = f"must be {self.tiers} numbers from 0 to 1 that sum to 1, one for each tier"
            raise DescriptionError("schedule.sampling.chances", list(self.chances), expected)

    def least(self, clients: int, count: int) -> int:
        """A smallest tier, or as many as are wanted."""
        return min(count, clients // self.tiers)

    def strata(self, population: Population, rng: np.random.Generator) -> Strata:
        """The tiers, the fastest first."""
        return cut(np.argsort(population.visit_s, kind="stable").tolist(), self.tiers)

    def drawn(
        self,
        population: Population,
        candidates: Sequence[int],
        count: int,
        round: int,
        rng: np.random.Generator,
        losses: Mapping[int, float],
    ) -> tuple[int, ...]:
        """`count` of the candidates of one tier; a tier without candidates is never drawn."""
        may = [sorted(set(tier) & set(candidates)) for tier in population.strata]
        chances = np.array([1.0] * self.tiers if self.chances is None else self.chances)
        chances *= [bool(tier) for tier in may]
        if not chances.any():
            return ()
        return some(may[int(rng.choice(self.tiers, p=chances / chances.sum()))], count, rng)
