"""Only the signs travel, with one size for each chunk of numbers.

Source: Karimireddy, Rebjock, Stich, Jaggi: Error Feedback Fixes SignSGD and other Gradient Compression Schemes, ICML
2019 (the scaled sign); Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD, ICML 2018.
Formula: M = mean |v_j| of the chunk; Q(v)_j = M if v_j >= 0, else -M. Biased: `error_feedback = true` mends that.
Frame: 4 ceil(n / chunk) + ceil(n / 8) bytes: M as float32 little-endian for each chunk, then one bit for each number,
1 for v_j >= 0, the first in the lowest bit of its byte.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.chunks import chunks, level_bytes, packed, read_scales, require_chunk, rows, unpacked
from pflsim.coding.codec import Bytes, Shapes


@dataclass(frozen=True)
class Sign:
    """One bit a number."""

    chunk: int = 1024  # numbers that share a size

    biased: ClassVar[bool] = True
    differences_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_chunk(self.chunk)

    def variance(self, n: int) -> float:
        return 1 - 1 / max(1, min(n, self.chunk))

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return 4 * chunks(n, self.chunk) + level_bytes(n, 1)

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        parts = rows(v, self.chunk)
        sums, sizes = np.abs(parts).sum(axis=1, dtype=np.float64), np.full(len(parts), parts.shape[1])
        sizes[-1:] -= parts.size - len(v)
        scales = (sums / sizes).astype("<f4")
        return np.concatenate([scales.view(np.uint8), packed((v.numpy() >= 0).view(np.uint8), 1)])

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        m, chunk = chunks(n, self.chunk), min(n, self.chunk)
        scales = read_scales(frame, m)
        q = np.zeros(m * chunk, dtype=np.float32)
        q[:n] = unpacked(frame[4 * m :], n, 1)
        q *= 2
        q -= 1
        q.reshape(m, chunk)[:] *= scales[:, None]
        return torch.from_numpy(q[:n])
