"""Inner products, distances and angles between models: n vectors [d] become one [n, n] matrix.

All further work is done on such a matrix, for d is some hundred thousand and n some hundred. Sums are in float64.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch

Matrix: TypeAlias = np.ndarray  # float64

_CHUNK = 16_384  # numbers of each vector at a time, so that n float64 copies need not be in memory


def gram(vectors: Sequence[torch.Tensor], origin: torch.Tensor | None = None) -> Matrix:
    """The inner products [n, n] of n vectors [d], measured from `origin` where one is given.

    Near `origin` small distances between long vectors keep their digits. O(n^2 d).
    """
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for low in range(0, vectors[0].numel(), _CHUNK):
        part = torch.stack([vector[low : low + _CHUNK].double() for vector in vectors])
        if origin is not None:
            part = part - origin[low : low + _CHUNK].double()
        total += part @ part.T
    return np.asarray((total + total.T) / 2)


def squared_distances(products: Matrix) -> Matrix:
    """||a_i - a_j||^2 [n, n] from inner products."""
    own = np.diag(products)
    return np.asarray(np.maximum(own[:, None] + own[None, :] - 2.0 * products, 0.0))


def cosines(products: Matrix) -> Matrix:
    """cos(a_i, a_j) [n, n] from inner products; a vector of length 0 has 0 with all others, and 1 with itself."""
    length = np.sqrt(np.diag(products))
    both = np.outer(length, length)
    found = np.divide(products, both, out=np.zeros_like(products), where=both > 0.0)
    np.fill_diagonal(found, 1.0)
    return np.asarray(np.clip(found, -1.0, 1.0))


def absolute_distances(vectors: Sequence[torch.Tensor]) -> Matrix:
    """sum_m |a_im - a_jm| [n, n], the l1 distances."""
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for low in range(0, vectors[0].numel(), _CHUNK):
        part = torch.stack([vector[low : low + _CHUNK].double() for vector in vectors])
        total += torch.cdist(part, part, p=1.0)
    return np.asarray(total)
