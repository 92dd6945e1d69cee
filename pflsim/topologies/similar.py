"""Clients with labels in common are neighbours: the scenario S of FedU."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def similar(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    classes_per_client: int | None = None,
) -> np.ndarray:
    """a_kl = |labels_k ∩ labels_l| / `classes_per_client` for k != l, as [N, N].

    Without `classes_per_client` it is the size of the largest label set, so that equal sets have weight 1:
    with two labels per client this is the paper's 0, 0.5 and 1. Source: Dinh et al., "A New Look and
    Convergence Rate of Federated Multi-Task Learning with Laplacian Regularization", experiments, "Similar
    (S)".
    """
    if classes_per_client is not None and classes_per_client < 1:
        raise DescriptionError("topology.classes_per_client", classes_per_client, "must be at least 1")
    sets = [frozenset(own) for own in labels]
    scale = classes_per_client or max((len(own) for own in sets), default=1) or 1
    graph = np.array([[len(own & other) / scale for other in sets] for own in sets]).reshape(len(sets), len(sets))
    np.fill_diagonal(graph, 0.0)
    return graph
