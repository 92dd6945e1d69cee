"""Everybody takes part in every round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pflsim.sampling import Population


@dataclass(frozen=True)
class All:
    """All who may be drawn are drawn."""

    needs_losses: ClassVar[bool] = False

    def check(self, clients: int, count: int) -> None:
        """There is nothing to refuse."""

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
