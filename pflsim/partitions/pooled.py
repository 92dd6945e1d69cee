"""The centralised baseline (Global): client 0 holds all training data, the others only test parts."""

from dataclasses import replace
from typing import Any

import numpy as np

from pflsim.data.divide import divide
from pflsim.data.partition import NONE, Partition, Pool


def pooled(pool: Pool, clients: int, rng: np.random.Generator, *, of: dict[str, Any]) -> Partition:
    """What the partition `of` (a table of its own: name and settings) makes, with the training data moved to
    client 0.

    Test parts are exactly those that `of` gives under the same seed, so the two can be compared client by
    client; a sample that is in anybody's test part is not trained on. `rng` is not used: `of` draws from the
    partition's stream.
    """
    apart = divide(pool, of, clients, key="data.partition.of")
    tested = np.concatenate([part.test for part in apart.parts])
    train = np.setdiff1d(np.concatenate([part.train for part in apart.parts]), tested)
    selected_by = np.setdiff1d(np.concatenate([part.validation for part in apart.parts]), tested)
    parts = [replace(part, train=NONE, validation=NONE) for part in apart.parts]
    parts[0] = replace(parts[0], train=train, validation=np.setdiff1d(selected_by, train))
    return Partition(tuple(parts), {**apart.notes, "warning": "data leaves the clients"})
