"""40 clients with 3 of 10 classes and sizes in [400, 5000], no sample at two clients (the default reading of
CGPFL).

Sizes drawn uniformly from that range would need 108,000 of 60,000 samples, so they are skewed to the small
ones.
"""

import numpy as np

from pflsim.data.partition import Draw, Pool
from pflsim.data.quotas import Labels, dealt, label_sets, range_sizes


def disjoint_range(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    classes: int = 3,
    low: int = 400,
    high: int = 5000,
    use: float = 0.9,
    labels: Labels = "permuted",
) -> Draw:
    """Sizes in [low, high] that add up to about `use` of the pool; every client stays at or above `low`."""
    sets = label_sets(pool, clients, classes, labels, rng)
    return dealt(pool, range_sizes(pool, clients, low, high, use, rng), sets, rng, least=low)
