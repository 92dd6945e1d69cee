"""Sizes drawn uniformly from [low, high], samples drawn for each client alone: clients share samples.

With 40 clients and [400, 5000] about 108,000 samples are held of 60,000. Without `global_split` one client's
test sample may be another's training sample; the report counts them as `leaked`.
"""

import math
from typing import Literal

import numpy as np

from pflsim.data.partition import Draw, Indices, Part, Pool
from pflsim.data.quotas import Labels, label_sets, uniform_sizes
from pflsim.data.split import largest_remainder, stratified


def uniform_overlap(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    classes: int = 3,
    low: int = 400,
    high: int = 5000,
    shares: Literal["equal", "dirichlet"] = "equal",
    labels: Labels = "permuted",
    global_split: bool = True,
) -> Draw:
    """Each client draws its size, splits it over its labels (equally or by Dirichlet(1)) and draws those
    samples.

    With `global_split` the pool is first split, by label, into a training and a test part, and every client
    draws from both, so that nobody trains on anybody's test sample.
    """
    sets = label_sets(pool, clients, classes, labels, rng)
    sizes = uniform_sizes(pool, clients, low, high, classes, rng)  # one sample of each class at least
    weights = np.ones((clients, classes)) if shares == "equal" else rng.dirichlet(np.ones(classes), clients)
    everything = np.arange(len(pool))
    train_pool, test_pool = everything, everything[:0]
    if global_split:
        train_pool, test_pool = stratified(everything, pool.labels, pool.test_share, rng)
    train_piles = [train_pool[pool.labels[train_pool] == label] for label in range(pool.classes)]
    test_piles = [test_pool[pool.labels[test_pool] == label] for label in range(pool.classes)]
    parts = []
    for size, own, weight in zip(sizes.tolist(), sets, weights, strict=True):
        test_size = math.ceil(pool.test_share * size - 1e-9) if global_split else 0
        train = _draw(size - test_size, own, weight, train_piles, rng)
        parts.append(Part(train, test=_draw(test_size, own, weight, test_piles, rng)))
    return Draw(parts if global_split else [part.train for part in parts])


def _draw(size: int, labels: Indices, weights: np.ndarray, piles: list[Indices], rng: np.random.Generator) -> Indices:
    """`size` samples over `labels` in proportion to `weights`, without replacement; at most what there is."""
    there = np.array([len(piles[label]) for label in labels])
    counts = largest_remainder(weights, size, there)
    chosen = [rng.choice(piles[label], n, replace=False) for label, n in zip(labels, counts, strict=True)]
    return np.sort(np.concatenate(chosen))
