"""Clients with little data listen to those with much: the scenario W of FedU."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def weighted(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    small_share: float = 0.5,
    small_to_large: float = 0.5,
    large_to_large: float = 1.0,
) -> np.ndarray:
    """Weights [N, N]: none among the small clients, `small_to_large` to large ones, `large_to_large` there.

    The small clients H are the floor(`small_share` N) with the fewest training samples (ties: the lower id);
    with the papers' down-sampling of half of the clients that is the half that lost data. `sizes` is [N].
    Source: Dinh et al., "A New Look and Convergence Rate of Federated Multi-Task Learning with Laplacian
    Regularization", experiments, "Weighted (W)".
    """
    if not 0.0 <= small_share <= 1.0:
        raise DescriptionError("topology.small_share", small_share, "must be from 0 to 1")
    for key, weight in (("small_to_large", small_to_large), ("large_to_large", large_to_large)):
        if not 0.0 <= weight < 1e9:
            raise DescriptionError(f"topology.{key}", weight, "must be from 0 and below 1e9")
    clients = len(labels)
    small = np.zeros(clients, dtype=bool)
    small[np.argsort(sizes, kind="stable")[: int(small_share * clients)]] = True
    graph = np.full((clients, clients), float(small_to_large))
    graph[np.ix_(small, small)] = 0.0
    graph[np.ix_(~small, ~small)] = large_to_large
    np.fill_diagonal(graph, 0.0)
    return graph
