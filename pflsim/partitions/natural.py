"""The clients that the data themselves have: subjects, sensors, writers."""

from typing import Literal

import numpy as np

from pflsim.data.partition import Draw, Pool, require
from pflsim.errors import DescriptionError


def natural(pool: Pool, clients: int, rng: np.random.Generator, *, pick: Literal["first", "random"] = "first") -> Draw:
    """One client per natural client id, ascending; `pick` says which, if the run has fewer clients."""
    if pool.client is None:
        raise DescriptionError(f"{pool.key}.name", "natural", "the data have no client id per row")
    ids = np.unique(pool.client)
    fits = f"the data have {len(ids)} natural clients: use at most that many"
    require(clients <= len(ids), "run.clients", clients, fits)
    chosen = ids[:clients] if pick == "first" else np.sort(rng.choice(ids, clients, replace=False))
    held = [np.flatnonzero(pool.client == identity) for identity in chosen]
    return Draw(held, {"natural_ids": chosen.tolist()})
