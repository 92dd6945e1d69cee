"""Everybody takes part in every round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pflsim.sampling import Population, Sampling


@dataclass(frozen=True)
class All(Sampling):
    """All who may be drawn are drawn."""

    def least(self, clients: int, count: int) -> int:
        """Everybody."""
        return clients

    def drawn(
        self,
        population: Population,
        candidates: Sequence[int],
        count: int,
        round: int,
        rng: np.random.Generator,
        losses: Mapping[int, float],
    ) -> tuple[int, ...]:
        """All candidates."""
        return tuple(sorted(candidates))
