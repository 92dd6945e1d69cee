"""A cohort drawn anew in each round, everybody as likely as anybody else, nobody twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pflsim.sampling import Population, some


@dataclass(frozen=True)
class Uniform:
    """Uniformly, without replacement."""

    needs_losses: ClassVar[bool] = False

    def check(self, clients: int, count: int) -> None:
        """There is nothing to refuse."""

    def least(self, clients: int, count: int) -> int:
        """As many as are wanted."""
        return count

    def drawn(
        self,
        population: Population,
        candidates: Sequence[int],
        count: int,
        round: int,
        rng: np.random.Generator,
        losses: Mapping[int, float],
    ) -> tuple[int, ...]:
        """`count` of the candidates."""
        return some(candidates, count, rng)
