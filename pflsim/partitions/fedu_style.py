"""The split of FedU's published generators: consecutive blocks per class, neighbours in a ring share labels.

MNIST, 100 clients, labels {i, i+1}: the defaults. CIFAR-10, 20 clients: classes = 3, multiplier = 1,
extra_low = 300, extra_high = 600. Both on all images, training and test together (`data.pool = "all"`).
"""

import numpy as np

from pflsim.data.blocks import Recipe, blocks
from pflsim.data.partition import Draw, Pool


def fedu_style(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    classes: int = 2,
    base: int = 10,
    multiplier: int = 10,
    extra_low: int = 160,
    extra_high: int = 250,
    sigma: float = 2.0,
    doubled_up_to: int = 20,
) -> Draw:
    """Blocks of int(share) * U{1..multiplier} + U{low..high of extra} samples; shares lognormal(0, sigma)."""
    recipe = Recipe(classes, base, multiplier, (extra_low, extra_high), sigma, doubled_up_to)
    return blocks(pool, clients, recipe, rng)
