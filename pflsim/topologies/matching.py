"""In each round everybody is linked with one other, drawn at random."""

from collections.abc import Sequence

import numpy as np


def matching(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    round: int,
) -> np.ndarray:
    """Weight 1 in pairs that are drawn anew in each round, as [N, N]; with an odd number of clients one has nobody."""
    clients, order = len(labels), rng.permutation(len(labels))
    one, other = order[0 : clients - 1 : 2], order[1:clients:2]
    graph = np.zeros((clients, clients))
    graph[one, other] = graph[other, one] = 1.0
    return graph
