"""In round r everybody is linked with one other, at distance 1, 2, 4, ... in turn."""

from collections.abc import Sequence

import numpy as np


def one_peer_exponential(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    round: int,
) -> np.ndarray:
    """Weight 1 between k and k + 2^j for those k that have no 2^j in them, j = `round` modulo ceil(log2 N), as [N, N].

    These are pairs, of which each edge serves both ways; whoever's partner would be beyond N has nobody in that round.
    Where N is a power of two, averaging in pairs gives everybody the mean of all after log2 N rounds. Source: Ying,
    Yuan, Chen, Hu, Pan, Yin: Exponential Graph is Provably Efficient for Decentralized Deep Training, whose one-peer
    graph is directed, from k to k + 2^j modulo N; this is its symmetric relative, a hypercube's edges.
    """
    clients = len(labels)
    graph = np.zeros((clients, clients))
    distance = 1 << round % max(1, (clients - 1).bit_length())
    k = np.flatnonzero(np.arange(clients) & distance == 0)
    k = k[k + distance < clients]
    graph[k, k + distance] = graph[k + distance, k] = 1.0
    return graph
