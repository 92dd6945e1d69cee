"""One client is linked with all others, which are linked with nobody else."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def star(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    centre: int = 0,
) -> np.ndarray:
    """Weight 1 between `centre`, a client's number, and everybody else, as [N, N]."""
    if not 0 <= centre < len(labels):
        raise DescriptionError("topology.centre", centre, f"must be a client's number, from 0 to {len(labels) - 1}")
    graph = np.zeros((len(labels), len(labels)))
    graph[centre] = graph[:, centre] = 1.0
    graph[centre, centre] = 0.0
    return graph
