"""Label skew by a Dirichlet distribution: per client a mixture of labels, or per class the shares of the
clients.

Per client is the split of Hsu, Qi and Brown (2019); per class that of Yurochkin et al. (2019). Both end: the
first deals from classes that still have samples, the second moves samples after so many draws.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from pflsim.data.partition import Draw, Indices, Pool
from pflsim.data.split import deal, largest_remainder


def dirichlet(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    alpha: float = 0.05,
    by: Literal["client", "class"] = "client",
    prior: Literal["pool", "ones"] = "pool",
    minimum: int = 10,
    retries: int = 100,
) -> Draw:
    """Skewed labels; the smaller `alpha`, the fewer classes a client has.

    `by = "client"`: equal sizes, mixtures ~ Dir(alpha * prior), where `prior` is the class frequencies of the
    pool (summing to 1) or all ones. `by = "class"`: shares ~ Dir(alpha) over the clients, drawn again up to
    `retries` times until everybody has `minimum` samples, then filled up from the largest client (told in the
    notes as `moved`).
    """
    pool.require(alpha > 0, "alpha", alpha, "must be above 0")
    piles = pool.by_class(rng)
    if by == "client":
        frequencies = pool.class_counts / len(pool)
        concentration = alpha * (frequencies if prior == "pool" else np.ones(pool.classes))
        return Draw(deal(piles, _per_client(pool.class_counts, clients, concentration, rng)))
    most = len(pool) // clients
    fits = f"must be from 1 to {most}: {clients} clients of {len(pool)} samples cannot all have {minimum}"
    pool.require(1 <= minimum <= most, "minimum", minimum, fits)
    pool.require(retries >= 0, "retries", retries, "must not be negative")
    quotas = _per_class(pool.class_counts, clients, alpha, rng)
    for _ in range(retries):
        if quotas.sum(1).min() >= minimum:
            break
        quotas = _per_class(pool.class_counts, clients, alpha, rng)
    moved = _fill_up(quotas, minimum)
    return Draw(deal(piles, quotas), {"moved": moved} if moved else {})


def _per_client(
    there: Indices, clients: int, concentration: npt.NDArray[np.float64], rng: np.random.Generator
) -> Indices:
    """Quotas [N, C]: each client fills its size from its mixture, renormalised over the classes that have
    samples.

    Clients choose in random order, because the last ones get what the others left.
    """
    left, quotas = there.copy(), np.zeros((clients, len(there)), np.int64)
    size = int(there.sum()) // clients
    used = there > 0
    mixtures = np.zeros(quotas.shape)
    mixtures[:, used] = rng.dirichlet(concentration[used], clients)
    for client in rng.permutation(clients).tolist():
        while (missing := size - int(quotas[client].sum())) > 0:
            weights = np.where(left > 0, mixtures[client], 0.0)
            if not weights.sum() > 0:  # everything it wants has been dealt out
                weights = left.astype(np.float64)
            taken = np.minimum(rng.multinomial(missing, weights / weights.sum()), left)
            quotas[client] += taken
            left -= taken
    return quotas


def _per_class(there: Indices, clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    shares = rng.dirichlet(np.full(clients, alpha), len(there))
    edges = np.floor(np.cumsum(shares, 1) * there[:, None] + 1e-9).astype(np.int64)
    edges[:, -1] = there
    return np.diff(edges, axis=1, prepend=0).T.copy()


def _fill_up(quotas: Indices, minimum: int) -> int:
    """Move samples from the largest client until all have `minimum`; returns how many moved."""
    moved = 0
    while quotas.sum(1).min() < minimum:
        sizes = quotas.sum(1)
        poorest, richest = int(sizes.argmin()), int(sizes.argmax())
        amount = min(minimum - int(sizes[poorest]), int(sizes[richest]) - minimum)
        given = largest_remainder(quotas[richest], amount, quotas[richest])
        quotas[richest] -= given
        quotas[poorest] += given
        moved += amount
    return moved
