"""Every client lives in one known context of synthetic data: the ground truth of clustered methods."""

import numpy as np

from pflsim.data.partition import Indices, Pool, require
from pflsim.errors import DescriptionError


def by_context(pool: Pool, clients: int, rng: np.random.Generator) -> list[Indices]:
    """Client i gets an equal, random share of context i modulo the number of contexts."""
    if pool.context is None:
        raise DescriptionError(f"{pool.key}.name", "by-context", "the data have no known contexts")
    contexts = np.unique(pool.context)
    fits = f"must be at least {len(contexts)}, the number of contexts"
    require(clients >= len(contexts), "run.clients", clients, fits)
    held: list[Indices] = [np.empty(0, np.int64)] * clients
    for position, context in enumerate(contexts):
        members = range(position, clients, len(contexts))
        samples = rng.permutation(np.flatnonzero(pool.context == context))
        for client, share in zip(members, np.array_split(samples, len(members)), strict=True):
            held[client] = share
    return held
