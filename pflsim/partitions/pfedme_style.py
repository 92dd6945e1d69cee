"""The split of pFedMe's generator with the 3 of 10 labels of CGPFL: some blocks are skipped."""

import numpy as np

from pflsim.data.blocks import Recipe, blocks
from pflsim.data.partition import Draw, Pool


def pfedme_style(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    classes: int = 3,
    base: int = 10,
    extra_low: int = 300,
    extra_high: int = 600,
    sigma: float = 2.0,
    doubled_up_to: int = 20,
) -> Draw:
    """Blocks of int(share) + U{extra_low..extra_high} samples, shares lognormal(0, sigma)."""
    recipe = Recipe(classes, base, 1, (extra_low, extra_high), sigma, doubled_up_to)
    return blocks(pool, clients, recipe, rng)
