"""Consecutive blocks under a moving cursor per class: how the generators of pFedMe and FedU deal out data.

Every client first gets `base` samples of each of its labels. Then, client by client and label by label, a
block of int(share) * multiplier + extra samples is cut at the class's cursor; a block that does not fit in
what is left of the class is skipped, so that the client keeps just its `base` samples of that label. Sizes
are an outcome, not a setting.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pflsim.data.partition import Draw, Indices, Pool
from pflsim.data.quotas import label_sets
from pflsim.data.split import deal


@dataclass(frozen=True)
class Recipe:
    """The numbers of one generator."""

    classes: int  # labels of a client
    base: int
    multiplier: int  # a block's share is multiplied by U{1..multiplier}
    extra: tuple[int, int]  # and U{extra} samples are added
    sigma: float  # of the lognormal shares
    doubled_up_to: int  # with so many clients or fewer, blocks are twice as long


def blocks(pool: Pool, clients: int, recipe: Recipe, rng: np.random.Generator) -> Draw:
    """Deal out the pool by `recipe`; the notes tell how many blocks were skipped."""
    sets = label_sets(pool, clients, recipe.classes, "cyclic", rng)
    counts = pool.class_counts
    asked = recipe.base * int(np.bincount(sets.ravel(), minlength=pool.classes).max())
    fits = f"asks for {asked} samples of a class that has {counts.min()}: use fewer clients or a smaller base"
    pool.require(recipe.base >= 1 and asked <= counts.min(), "base", recipe.base, fits)
    low, high = recipe.extra
    pool.require(0 <= low <= high, "extra_low", low, f"must be from 0 to extra_high = {high}")
    pool.require(recipe.multiplier >= 1, "multiplier", recipe.multiplier, "must be at least 1")
    pool.require(0 <= recipe.sigma <= 10, "sigma", recipe.sigma, "must be from 0 to 10")
    shape = (clients, recipe.classes)
    shares = block_shares(counts, rng.lognormal(0.0, recipe.sigma, (pool.classes, *shape)), sets)
    lengths = shares * rng.integers(1, recipe.multiplier + 1, shape) + rng.integers(low, high + 1, shape)
    quotas, skipped = lay(counts, sets, lengths * (1 + (clients <= recipe.doubled_up_to)), recipe.base)
    return Draw(deal(pool.by_class(rng), quotas), {"blocks": sets.size, "skipped_blocks": skipped})


def block_shares(counts: Indices, drawn: npt.NDArray[np.float64], sets: Indices) -> Indices:
    """The whole shares [N, k] of each client's blocks, from the draws [C, N, k], of which most are not used.

    A class's draws are scaled to sum to its samples less one per client. The generators look them up by
    client // (N / 10), not by client: neighbours share a row, and most of the scaled samples are never dealt.
    """
    classes, clients, k = drawn.shape
    scaled = (counts - clients)[:, None, None] * drawn / drawn.sum((1, 2), keepdims=True)
    row = np.arange(clients) * min(classes, clients) // clients
    used: npt.NDArray[np.float64] = scaled[sets, row[:, None], np.arange(k)]
    return np.maximum(used, 0).astype(np.int64)


def lay(counts: Indices, sets: Indices, lengths: Indices, base: int) -> tuple[Indices, int]:
    """Quotas [N, C] and the number of skipped blocks, for blocks of `lengths` [N, k] of `sets` [N, k]."""
    quotas = np.zeros((len(sets), len(counts)), np.int64)
    np.put_along_axis(quotas, sets, base, axis=1)
    cursor, skipped = quotas.sum(0), 0
    for client, (labels, own) in enumerate(zip(sets.tolist(), lengths.tolist(), strict=True)):
        for label, length in zip(labels, own, strict=True):
            if cursor[label] + length < counts[label]:
                quotas[client, label] += length
                cursor[label] += length
            else:
                skipped += 1
    return quotas, skipped
