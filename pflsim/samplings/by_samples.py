"""A cohort drawn anew in each round with chances proportional to the clients' training samples, nobody twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pflsim.sampling import Population, Sampling


@dataclass(frozen=True)
class BySamples(Sampling):
    """One after the other, each with a chance proportional to n_i among those that are left; never without samples."""

    def drawn(
        self,
        population: Population,
        candidates: Sequence[int],
        count: int,
        round: int,
        rng: np.random.Generator,
        losses: Mapping[int, float],
    ) -> tuple[int, ...]:
        """`count` of the candidates that have samples."""
        sizes = population.sizes[list(candidates)]
        most = min(count, int(np.count_nonzero(sizes)))
        if most == 0:
            return ()
        drawn = rng.choice(len(candidates), most, replace=False, p=sizes / sizes.sum())
        return tuple(sorted(int(candidates[place]) for place in drawn))
