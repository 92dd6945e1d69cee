"""Everybody is linked with everybody."""

from collections.abc import Sequence

import numpy as np


def full(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Weight 1 for every pair, as [N, N]; `equal` is the same with another weight."""
    return 1.0 - np.eye(len(labels))
