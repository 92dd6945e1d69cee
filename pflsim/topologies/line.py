"""A chain: everybody has two neighbours, but the first and the last have one."""

from collections.abc import Sequence

import numpy as np


def line(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Weight 1 between k and k + 1, as [N, N]."""
    clients = len(labels)
    return np.eye(clients, k=1) + np.eye(clients, k=-1)
