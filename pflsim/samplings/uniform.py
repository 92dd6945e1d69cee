"""A cohort drawn anew in each round, everybody as likely as anybody else, nobody twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pflsim.sampling import Population, Sampling, some


@dataclass(frozen=True)
class Uniform(Sampling):
    """Uniformly, without replacement."""

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
