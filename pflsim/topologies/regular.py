"""Everybody has equally many neighbours, drawn at random."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def regular(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    degree: int = 4,
) -> np.ndarray:
    """A random graph in which everybody has `degree` neighbours, of weight 1, as [N, N].

    Drawn almost uniformly from all of them, by networkx. Degree 3 and more is nearly always connected, 2 are rings.
    """
    import networkx as nx

    clients = len(labels)
    if not 0 <= degree < clients:
        fits = f"must be from 0 to {clients - 1}, for {clients} clients"
        raise DescriptionError("topology.degree", degree, fits)
    if degree * clients % 2:
        reason = f"must be even, because {clients} clients are an odd number and every edge has two ends"
        raise DescriptionError("topology.degree", degree, reason)
    drawn = nx.random_regular_graph(degree, clients, seed=int(rng.integers(2**32)))
    return np.asarray(nx.to_numpy_array(drawn, nodelist=range(clients), dtype=np.float64))
