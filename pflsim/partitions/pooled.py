"""The centralised baseline (Global): client 0 holds all training data, the others only test parts."""

from typing import Any

import numpy as np

from pflsim.data.divide import divide
from pflsim.data.partition import Partition, Pool


def pooled(pool: Pool, clients: int, rng: np.random.Generator, *, of: dict[str, Any]) -> Partition:
    """What the partition `of` (a table of its own: name and settings) makes, with the training data moved to
    client 0.

    Test parts are exactly those that `of` gives under the same seed, so the two can be compared client by
    client; a sample that is in anybody's test part is not trained on. `rng` is not used: `of` draws from the
    partition's stream. The method `centralised` does this by itself, whatever the partition is.
    """
    return divide(pool, of, clients, key="data.partition.of").pooled()
