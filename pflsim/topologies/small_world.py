"""A ring of neighbourhoods with some edges thrown across it, by Watts and Strogatz."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def small_world(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    neighbours: int = 4,
    rewiring: float = 0.1,
) -> np.ndarray:
    """Weight 1 with the `neighbours` nearest on a ring, each edge rewired with probability `rewiring`, as [N, N].

    A rewired edge keeps one end; its other end is drawn uniformly. Source: Watts, Strogatz: Collective
    Dynamics of 'Small-World' Networks. Drawn by networkx.
    """
    import networkx as nx

    clients = len(labels)
    if neighbours % 2 or not 0 <= neighbours < clients:
        fits = f"must be an even number, half of them on each side, below {clients}, the number of clients"
        raise DescriptionError("topology.neighbours", neighbours, fits)
    if not 0.0 <= rewiring <= 1.0:
        raise DescriptionError("topology.rewiring", rewiring, "must be a probability, from 0 to 1")
    drawn = nx.watts_strogatz_graph(clients, neighbours, rewiring, seed=int(rng.integers(2**32)))
    return np.asarray(nx.to_numpy_array(drawn, nodelist=range(clients), dtype=np.float64))
