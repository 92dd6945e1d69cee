"""Everybody has equally many neighbours, drawn anew in each round."""

from collections.abc import Sequence

import numpy as np

from pflsim.topologies.regular import regular


def random_regular_each_round(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    round: int,
    *,
    degree: int = 4,
) -> np.ndarray:
    """A graph as `regular` draws it, another one in each round, as [N, N]."""
    return regular(labels, sizes, rng, degree=degree)
