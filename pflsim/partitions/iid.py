"""Every client gets a random share of the same size; sizes differ by at most one sample."""

import numpy as np

from pflsim.data.partition import Indices, Pool


def iid(pool: Pool, clients: int, rng: np.random.Generator) -> list[Indices]:
    """A random, equal division of all samples."""
    return np.array_split(rng.permutation(len(pool)), clients)
