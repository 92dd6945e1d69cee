"""Least squares, for exact tests: with half the squared error its Hessian is X^T X / n."""

import math

from torch import nn

from pflsim.errors import DescriptionError


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One output without a bias, for data with real-valued targets (classes = 0)."""
    if classes != 0:
        raise DescriptionError("model.name", "linear", f"wants real-valued targets, not labels of {classes} classes")
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 1, bias=False))
