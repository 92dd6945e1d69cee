"""Splits by label: a test or validation part, the rest after down-sampling, the official test part."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def largest_remainder(weights: npt.NDArray[Any], total: int, capacity: npt.NDArray[Any]) -> Indices:
    """Integers [k] that sum to `total` (or to what `capacity` allows), as near to proportional as can be.

    Ties go to the smaller index, so the result depends on nothing but the arguments.
    """
    capacity = np.where(weights > 0, capacity, 0).astype(np.int64)
    total = min(total, int(capacity.sum()))
    taken = np.zeros(len(weights), np.int64)
    while (missing := total - int(taken.sum())) > 0:
        open_weights = np.where(taken < capacity, weights, 0.0).astype(np.float64)
        wanted = missing * open_weights / open_weights.sum()
        whole = np.floor(wanted).astype(np.int64)
        taken += np.minimum(whole, capacity - taken)
        nearest = np.argsort(whole - wanted, kind="stable")  # the largest remainder first
        nearest = nearest[(taken < capacity)[nearest]][: total - int(taken.sum())]
        taken[nearest] += 1
    return taken


def _take(indices: Indices, labels: Indices, counts: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """(rest, taken): `counts[c]` samples of the c-th smallest label, chosen at random; both ascending."""
    order = rng.permutation(len(indices))
    _, inverse, sizes = np.unique(labels[indices], return_inverse=True, return_counts=True)
    order = order[np.argsort(inverse[order], kind="stable")]
    position_in_label = np.arange(len(indices)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(len(indices), bool)
    chosen[order] = position_in_label < np.repeat(counts, sizes)
    return np.sort(indices[~chosen]), np.sort(indices[chosen])


def stratified(indices: Indices, labels: Indices, share: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """(rest, taken): ceil(share * n) of a client's samples taken off, by label, `labels` being those of the
    pool.

    At least one sample is taken and one of each label stays, so a label with a single sample stays. Where
    every label has a single sample, one of them is taken all the same. A client with fewer than 2 samples
    keeps what it has.
    """
    total = math.ceil(share * len(indices) - 1e-9)
    if total == 0 or len(indices) < 2:
        return np.sort(indices), indices[:0]
    sizes = np.unique(labels[indices], return_counts=True)[1]
    if sizes.max() == 1:
        counts = np.zeros(len(sizes), np.int64)
        counts[rng.integers(len(sizes))] = 1
    else:
        counts = largest_remainder(sizes, total, sizes - 1)
    return _take(indices, labels, counts, rng)


def keep_share(indices: Indices, labels: Indices, share: float, rng: np.random.Generator) -> Indices:
    """A random share of a client's samples, by label, at least one of each label that was there."""
    if share >= 1 or not len(indices):
        return indices
    sizes = np.unique(labels[indices], return_counts=True)[1]
    more = max(0, round(share * len(indices)) - len(sizes))
    return _take(indices, labels, 1 + largest_remainder(sizes, more, sizes - 1), rng)[1]


def official_test(train_labels: Sequence[Indices], test_labels: Indices, rng: np.random.Generator) -> list[Indices]:
    """The official test samples dealt out: each class in proportion to what the clients train on of it.

    No test sample goes to two clients. A client that would get none takes one, of its most frequent class,
    from the client that has most of that class. Returns indices into `test_labels`.
    """
    classes = 1 + max(int(test_labels.max()), *(int(labels.max(initial=0)) for labels in train_labels))
    held = np.stack([np.bincount(labels, minlength=classes) for labels in train_labels])
    there = np.bincount(test_labels, minlength=classes)
    room = np.broadcast_to(there, held.shape)
    by_class = [largest_remainder(held[:, c], int(there[c]), room[:, c]) for c in range(classes)]
    quotas = np.stack(by_class, axis=1)
    for client in np.flatnonzero(quotas.sum(1) == 0):
        label = int(held[client].argmax())
        richest = int(quotas[:, label].argmax())
        if quotas[richest].sum() > 1 and quotas[richest, label] > 0:
            quotas[richest, label] -= 1
            quotas[client, label] += 1
    order = rng.permutation(len(test_labels))
    piles = np.split(order[np.argsort(test_labels[order], kind="stable")], np.cumsum(there)[:-1])
    return deal(piles, quotas)


def deal(by_class: Sequence[Indices], quotas: Indices) -> list[Indices]:
    """Hand out samples without replacement: client i gets `quotas[i, c]` of class c; quotas are [N, C]."""
    piles = []
    for c, samples in enumerate(by_class):
        edges = np.cumsum(quotas[:, c])
        piles.append(np.split(samples[: edges[-1]], edges[:-1]))
    return [np.sort(np.concatenate([pile[client] for pile in piles])) for client in range(len(quotas))]
