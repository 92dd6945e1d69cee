"""A topology of one's own: a function that returns the weights of the graph between clients.

pflsim run launch/runs/start-here-no-server.toml --set 'topology={name="examples/caves.py:caves",size=5}'
"""

from collections.abc import Sequence

import numpy as np


def caves(
    labels: Sequence[tuple[int, ...]], sizes: np.ndarray, rng: np.random.Generator, *, size: int = 5
) -> np.ndarray:
    """Caves of `size` clients that all know each other, in a ring; one of each knows one of the next. Returns [N, N].

    `labels` and `sizes` [N] are what a topology may know of the clients. With a further parameter `round` before the *
    it would be asked anew in each round.
    """
    clients = len(labels)
    cave = np.arange(clients) // size
    graph = (cave[:, None] == cave[None, :]).astype(float)
    for last in range(size - 1, clients, size):
        following = (last + 1) % clients
        graph[last, following] = graph[following, last] = 1.0
    np.fill_diagonal(graph, 0.0)
    return graph
