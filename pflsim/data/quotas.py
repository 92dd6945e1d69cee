"""How many samples of which class each client gets: label sets, sizes, quotas that the classes can fill."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from pflsim.data.partition import Draw, Indices, Pool
from pflsim.data.split import deal

Labels = Literal["cyclic", "permuted", "random"]


def label_sets(pool: Pool, clients: int, k: int, labels: Labels, rng: np.random.Generator) -> Indices:
    """The k labels of each client, [N, k].

    `cyclic`: client i has i, i+1, ..., modulo the number of classes; `permuted`: the same with the classes in
    a random order; `random`: any k, drawn for each client alone.
    """
    pool.require(pool.classes > 0, "name", pool.partition, "must be iid or natural: the data have no classes")
    fits = f"must be from 1 to {pool.classes}, the number of classes of the data"
    pool.require(1 <= k <= pool.classes, "classes", k, fits)
    if labels == "random":
        return np.stack([np.sort(rng.choice(pool.classes, k, replace=False)) for _ in range(clients)])
    order = rng.permutation(pool.classes) if labels == "permuted" else np.arange(pool.classes)
    sets: Indices = order[(np.arange(clients)[:, None] + np.arange(k)) % pool.classes]
    return sets


def uniform_sizes(pool: Pool, clients: int, low: int, high: int, least: int, rng: np.random.Generator) -> Indices:
    """Sizes drawn uniformly from [low, high], [N], where `low` must be at least `least`."""
    pool.require(least <= low <= high, "low", low, f"must be from {least} to high = {high}")
    sizes: Indices = rng.integers(low, high + 1, clients)
    return sizes


def range_sizes(
    pool: Pool, clients: int, low: int, high: int, use: float, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Sizes in [low, high], [N], skewed to the small ones so that together they are about `use` of the pool.

    low + (high - low) u^g with u uniform has the wanted mean for g = (high - low) / (mean - low) - 1; where a
    draw still asks for more, what exceeds `low` shrinks in proportion.
    """
    pool.require(0 < use <= 1, "use", use, "must be above 0 and at most 1")
    budget = use * len(pool)
    mean = budget / clients
    few = f"low must be below and high above {mean:.0f}, the mean of {clients} clients of {len(pool)} samples"
    pool.require(1 <= low < mean, "low", low, few)
    pool.require(mean < high, "high", high, few)
    g = (high - low) / (mean - low) - 1
    sizes = low + (high - low) * rng.random(clients) ** g
    excess = float(sizes.sum() - clients * low)
    room = budget - clients * low
    if excess <= room:  # also where u^g has vanished, because the mean is hardly above `low`
        return sizes
    return low + (sizes - low) * room / excess


def fill(sizes: Indices, holds: npt.NDArray[np.bool_], room: Indices) -> Indices:
    """Quotas [N, C] with row sums `sizes` [N] where `holds`, and no class dealt beyond its `room` [C].

    Starts from equal shares; alternates between scaling down the classes that are asked for too much and
    scaling every client back to its size; rounds down; hands out what rounding left. What cannot be had stays
    missing.
    """
    wanted = holds * (sizes / holds.sum(1))[:, None]
    for _ in range(300):
        asked = wanted.sum(0)
        wanted = wanted * np.minimum(1.0, room / np.maximum(asked, 1.0))
        if np.all(asked <= room * (1 + 1e-9)):
            break
        wanted = wanted * (sizes / np.maximum(wanted.sum(1), 1e-9))[:, None]
    wanted = wanted * np.minimum(1.0, room / np.maximum(wanted.sum(0), 1.0))
    quotas: Indices = np.floor(wanted).astype(np.int64)
    for client, size in enumerate(sizes.tolist()):
        while (missing := size - int(quotas[client].sum())) > 0:
            if not _add(quotas, holds, room, client, missing):
                break
    return quotas


def _add(quotas: Indices, holds: npt.NDArray[np.bool_], room: Indices, client: int, missing: int) -> int:
    """Give `client` up to `missing` samples more, by exchanges between others where its classes are used up.

    Searches breadth first over classes: the client takes some of class a, of which another client lets go for
    as many of its own class b, and so on to a class with room; the sizes of the others stay. Returns how many
    were given.
    """
    free = room - quotas.sum(0)
    own = np.flatnonzero(holds[client])
    queue: list[int] = own[np.argsort(-free[own], kind="stable")].tolist()
    came_from = dict.fromkeys(queue, (-1, client))  # class -> (class let go for it, by whom)
    for label in queue:  # grows while it is read
        if free[label] > 0:
            return _exchange(quotas, came_from, label, min(missing, int(free[label])))
        for mover in np.flatnonzero(quotas[:, label] > 1).tolist():
            for other in np.flatnonzero(holds[mover]).tolist():
                if other not in came_from:
                    came_from[other] = (label, mover)
                    queue.append(other)
    return 0


def _exchange(quotas: Indices, came_from: dict[int, tuple[int, int]], label: int, amount: int) -> int:
    path = []
    while label != -1:
        before, mover = came_from[label]
        path.append((mover, label, before))
        if before != -1:
            amount = min(amount, int(quotas[mover, before]) - 1)
        label = before
    for mover, label, before in path:
        quotas[mover, label] += amount
        if before != -1:
            quotas[mover, before] -= amount
    return amount


def dealt(pool: Pool, sizes: npt.NDArray[np.float64], sets: Indices, rng: np.random.Generator, least: int = 1) -> Draw:
    """Disjoint clients with `sizes` [N] samples of their labels `sets` [N, k], at least `least` each.

    Raises DescriptionError where a client cannot have `least`; a smaller shortfall is told in the notes.
    """
    whole = np.floor(sizes + 1e-9).astype(np.int64)
    holds = np.zeros((len(sets), pool.classes), bool)
    np.put_along_axis(holds, sets, True, axis=1)
    quotas = fill(whole, holds, pool.class_counts)
    short = int((whole - quotas.sum(1)).sum())
    for client, size in enumerate(quotas.sum(1).tolist()):
        reason = f"client {client} can have only {size} samples of its labels {sorted(sets[client].tolist())}"
        reason += f", fewer than {least}: use fewer clients"
        pool.require(size >= least, "name", pool.partition, reason)
    return Draw(deal(pool.by_class(rng), quotas), {"short": short} if short else {})
