"""A sampling of one's own: a frozen dataclass that says who takes part in a round.

    pflsim run launch/runs/start-here.toml --algorithm fedavg \\
        --set 'schedule={kind="sync",sampling="examples/round_robin.py:RoundRobin",cohort=10}'
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pflsim.sampling import Population, Sampling


@dataclass(frozen=True)
class RoundRobin(Sampling):
    """Clients take turns in the order of their numbers; nobody works again before everybody has."""

    first: int = 0  # who begins

    def drawn(
        self,
        population: Population,
        candidates: Sequence[int],
        count: int,
        round: int,
        rng: np.random.Generator,
        losses: Mapping[int, float],
    ) -> tuple[int, ...]:
        """The next `count` of the candidates, from where the round before ended."""
        clients = len(population.sizes)
        begin = self.first + round * count
        by_turn = sorted(candidates, key=lambda client: (client - begin) % clients)
        return tuple(sorted(by_turn[:count]))
