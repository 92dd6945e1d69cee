"""Every client holds k of the classes: the label skew of most personalised-learning studies."""

from typing import Literal

import numpy as np

from pflsim.data.partition import Draw, Pool
from pflsim.data.quotas import Labels, dealt, label_sets, range_sizes


def shards(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    classes: int = 2,
    labels: Labels = "cyclic",
    sizes: Literal["equal", "lognormal", "range"] = "equal",
    use: float = 1.0,
    sigma: float = 1.0,
    low: int = 10,
    high: int = 1000,
) -> Draw:
    """Disjoint clients of `classes` labels each, with sizes as even over the labels as the class counts
    allow.

    `use` is the share of the pool to deal out. Sizes: `equal`; `lognormal` with this `sigma`, above `low`;
    `range`, in [low, high] and skewed to the small ones. What a client cannot have of its labels is told in
    the notes as `short`.
    """
    sets = label_sets(pool, clients, classes, labels, rng)
    pool.require(0 < use <= 1, "use", use, "must be above 0 and at most 1")
    mean = use * len(pool) / clients
    few = f"{clients} clients of {len(pool)} samples have {mean:.1f} each on average: use fewer clients"
    pool.require(mean >= classes, "classes", classes, few)
    if sizes == "equal":
        return dealt(pool, np.full(clients, np.floor(mean + 1e-9)), sets, rng, least=classes)
    if sizes == "range":
        return dealt(pool, range_sizes(pool, clients, low, high, use, rng), sets, rng, least=min(low, classes))
    pool.require(1 <= low <= mean, "low", low, f"must be from 1 to {mean:.0f}, the mean size")
    pool.require(sigma >= 0, "sigma", sigma, "must not be negative")
    share = rng.lognormal(0.0, sigma, clients)
    return dealt(pool, low + (mean - low) * clients * share / share.sum(), sets, rng)
