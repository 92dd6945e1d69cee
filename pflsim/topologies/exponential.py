"""Everybody is linked with those at distances 1, 2, 4, 8, ... on a circle."""

from collections.abc import Sequence

import numpy as np


def exponential(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Weight 1 between k and k + 2^j modulo N for every 2^j < N, as [N, N]: about 2 log2 N neighbours.

    Source: Ying, Yuan, Chen, Hu, Pan, Yin: Exponential Graph is Provably Efficient for Decentralized Deep Training,
    where k only sends to these; here an edge serves both ways.
    """
    clients = len(labels)
    graph = np.zeros((clients, clients))
    k, distance = np.arange(clients), 1
    while distance < clients:
        other = (k + distance) % clients
        graph[k, other] = graph[other, k] = 1.0
        distance *= 2
    return graph
