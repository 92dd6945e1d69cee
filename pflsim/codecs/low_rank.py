"""Each matrix of parameters travels as the product of two thin ones.

Source: Vogels, Karimireddy, Jaggi: PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization,
NeurIPS 2019. Theirs starts from the Q of the message before and takes one power step; here Q is drawn anew and
`steps` power steps are taken, so that nothing has to be kept and a lost message harms no later one.
Formula: for M [a, b], Q drawn from a normal distribution; `steps` times P = orth(M Q), Q = M^T P; then Q(M) = P Q^T,
the projection of M onto `rank` directions. Biased: `error_feedback = true` mends that. A vector as long as the model is
parted into its parameters: those with two dimensions or more are matrices (a convolution's weight [o, i, h, w] is
[o, i h w]). What is no matrix, or would not become shorter, travels in float32.
Frame: for each parameter, in order, 4 r (a + b) bytes (P, then Q, row by row, float32 little-endian) with
r = min(rank, a, b) if r (a + b) < a b, else 4 times its numbers; the frame is the sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.codec import Bytes, Shapes
from pflsim.errors import DescriptionError

_MOST_RANK = 64


@dataclass(frozen=True)
class LowRank:
    """P Q^T for each matrix."""

    rank: int = 2  # of the product
    steps: int = 2  # power steps; more come nearer to the best product of this rank

    biased: ClassVar[bool] = True
    differences_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, value in (("rank", self.rank), ("steps", self.steps)):
            if not 1 <= value <= _MOST_RANK:
                raise DescriptionError(f"codec.{name}", value, f"must be from 1 to {_MOST_RANK}")

    def variance(self, n: int) -> float:
        return 1 - 1 / max(2, n)  # a projection never enlarges, and is never nothing but by a chance of 0

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return sum(4 * r * (a + b) if r else 4 * a * b for a, b, r in self._parts(n, shapes))

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        frames, at = [], 0
        for a, b, r in self._parts(len(v), shapes):
            part, at = v[at : at + a * b], at + a * b
            if r:
                frames += [factor.reshape(-1) for factor in self._factors(part.view(a, b), r, rng)]
            else:
                frames.append(part)
        return torch.cat(frames).numpy().astype("<f4", copy=False).view(np.uint8)

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        numbers = torch.from_numpy(frame.view("<f4").astype(np.float32))
        parts, at = [], 0
        for a, b, r in self._parts(n, shapes):
            size = r * (a + b) if r else a * b
            part, at = numbers[at : at + size], at + size
            parts.append(_product(part[: a * r].view(a, r), part[a * r :].view(b, r)) if r else part)
        return torch.cat(parts)

    def _parts(self, n: int, shapes: Shapes) -> Iterator[tuple[int, int, int]]:
        """The parameters as matrices [a, b], and the rank of each; 0 for what travels as it is."""
        for shape in shapes or ((n,),):
            a, b = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
            r = min(self.rank, a, b)
            yield a, b, r if r * (a + b) < a * b else 0

    def _factors(self, matrix: Tensor, r: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        Q = torch.from_numpy(rng.standard_normal((matrix.shape[1], r), dtype=np.float32))
        P = Q
        for _ in range(self.steps):
            P = _orthonormal(matrix @ Q)
            Q = matrix.T @ P
        return P, Q


def _orthonormal(columns: Tensor) -> Tensor:
    """The columns [a, r] made orthonormal one after the other, in float64; one that depends on others becomes 0."""
    P = columns.double()
    for j in range(P.shape[1]):
        length = P[:, j].norm()
        for _ in range(2):  # once more, as the first time leaves what it rounds away
            for i in range(j):
                P[:, j] -= (P[:, i] @ P[:, j]) * P[:, i]
        left = P[:, j].norm()
        P[:, j] = P[:, j] / left if left > 1e-6 * length else 0.0
    return P.float()


def _product(P: Tensor, Q: Tensor) -> Tensor:
    """P Q^T as [a b]; a sum of products in this order and no other, so that both ends have the same bits."""
    total = P[:, 0:1] * Q[:, 0]
    for j in range(1, P.shape[1]):
        total = total + P[:, j : j + 1] * Q[:, j]
    return total.reshape(-1)
