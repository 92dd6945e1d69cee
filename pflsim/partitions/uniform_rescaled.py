"""Sizes drawn uniformly from [low, high], then scaled so that together they fit the pool.

For 40 clients, [400, 5000] and 60,000 samples the range becomes about [222, 2778]: it goes below 400.
"""

import numpy as np

from pflsim.data.partition import Draw, Pool
from pflsim.data.quotas import Labels, dealt, label_sets, uniform_sizes


def uniform_rescaled(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    classes: int = 3,
    low: int = 400,
    high: int = 5000,
    use: float = 1.0,
    labels: Labels = "permuted",
) -> Draw:
    """Disjoint clients with uniform sizes scaled down (never up) to `use` of the pool."""
    pool.require(0 < use <= 1, "use", use, "must be above 0 and at most 1")
    sets = label_sets(pool, clients, classes, labels, rng)
    sizes = uniform_sizes(pool, clients, low, high, 1, rng).astype(np.float64)
    return dealt(pool, sizes * min(1.0, use * len(pool) / sizes.sum()), sets, rng)
