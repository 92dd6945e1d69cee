"""The probability simplex: where the weights of an agnostic mixture live."""

import torch


def onto_simplex(v: torch.Tensor) -> torch.Tensor:
    """The point nearest to `v` [n] among all q [n] with q >= 0 and sum q = 1.

    With u the values in descending order and j the largest number for which u_j + (1 - sum_{l <= j} u_l) / j > 0, it is
    max(v - theta, 0) with theta = (sum_{l <= j} u_l - 1) / j.
    """
    falling = v.sort(descending=True).values
    excess = falling.cumsum(0) - 1.0
    counts = torch.arange(1, len(v) + 1, dtype=v.dtype)
    largest = int((falling - excess / counts > 0).nonzero()[-1])
    return (v - excess[largest] / counts[largest]).clamp(min=0.0)
