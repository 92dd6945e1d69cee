"""What a method may want of a client's data beyond a mini-batch: the full gradient, and the smoothness."""

import math

import numpy as np
import torch

from pflsim.learning.task import Task

_MOST_BATCHES = 25  # of a client's data, in an estimate of the smoothness
_ITERATIONS = 10  # of the power method; the estimate is from below, by a few per cent
_STEP = 1e-2  # of the difference quotient: large enough for float32


def full_gradient(task: Task, w: torch.Tensor) -> torch.Tensor:
    """The gradient [d] of f_i at `w` over all training samples; `n_samples` forward and backward."""
    total = torch.zeros_like(w, dtype=torch.float64)
    for batch in task.batches(math.ceil(task.n_samples / task.training.batch), "whole"):
        total.add_(task.grad(w, batch), alpha=len(batch) / task.n_samples)
    return total.to(w.dtype)


def smoothness(task: Task, w: torch.Tensor, rng: np.random.Generator) -> float:
    """L, the largest curvature of f_i at `w`, by power iteration on differences of gradients; 0 without data.

    Takes at most 25 batches of the client's data, for more would cost seconds before the first round.
    """
    passes = math.ceil(task.n_samples / task.training.batch)
    batches = list(task.batches(min(passes, _MOST_BATCHES), "smoothness"))
    v, L = torch.from_numpy(rng.normal(size=len(w))).to(w.dtype), 0.0
    for _ in range(_ITERATIONS):
        v = v / v.norm()
        curved = torch.zeros_like(w)
        for batch in batches:
            difference = task.grad(w + _STEP * v, batch) - task.grad(w - _STEP * v, batch)
            curved.add_(difference, alpha=len(batch) / (2 * _STEP))
        L = float(curved.norm()) / max(1, sum(len(batch) for batch in batches))
        if L == 0.0:
            break
        v = curved
    return L
