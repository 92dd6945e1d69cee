"""Everybody is everybody's neighbour with one weight: the scenario E of FedU."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def equal(
    labels: Sequence[tuple[int, ...]], sizes: np.ndarray, rng: np.random.Generator, *, weight: float = 0.5
) -> np.ndarray:
    """The complete graph, a_kl = `weight` for k != l, as [N, N].

    Source: Dinh et al., "A New Look and Convergence Rate of Federated Multi-Task Learning with Laplacian
    Regularization", experiments, "Equal (E)".
    """
    if not 0.0 <= weight < 1e9:
        raise DescriptionError("topology.weight", weight, "must be from 0 and below 1e9")
    graph = np.full((len(labels), len(labels)), float(weight))
    np.fill_diagonal(graph, 0.0)
    return graph
