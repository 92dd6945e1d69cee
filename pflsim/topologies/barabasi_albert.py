"""A few clients have many neighbours: newcomers link with those that have many already."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def barabasi_albert(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    attached: int = 2,
) -> np.ndarray:
    """Weight 1 on the edges of a graph that grows by preferential attachment, as [N, N]; always connected.

    It begins with a star of `attached` + 1 clients; each further one links with `attached` different ones, drawn in
    proportion to the neighbours that they have. Source: Barabási, Albert: Emergence of Scaling in Random Networks.
    Drawn by networkx.
    """
    import networkx as nx

    clients = len(labels)
    if not 1 <= attached < clients:
        fits = f"must be from 1 to {clients - 1}, for {clients} clients"
        raise DescriptionError("topology.attached", attached, fits)
    drawn = nx.barabasi_albert_graph(clients, attached, seed=int(rng.integers(2**32)))
    return np.asarray(nx.to_numpy_array(drawn, nodelist=range(clients), dtype=np.float64))
