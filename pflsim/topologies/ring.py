"""Everybody has two neighbours, on a circle."""

from collections.abc import Sequence

import numpy as np


def ring(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Weight 1 between k and k + 1 modulo N, as [N, N]; two clients have one edge, one has none."""
    graph = np.zeros((len(labels), len(labels)))
    k = np.arange(len(labels))
    following = (k + 1) % len(labels)
    graph[k, following] = graph[following, k] = 1.0
    np.fill_diagonal(graph, 0.0)
    return graph
