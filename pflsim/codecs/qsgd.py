"""QSGD: each number is rounded at random to one of s levels of its chunk's Euclidean norm.

Source: Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding, NeurIPS 2017. The levels have a fixed number of bits here, not Elias codes: most of them are 0, which
`zstd = true` makes use of.
Formula: M = |v| of the chunk, s = 2^(bits - 1) - 1; q_j = floor(s v_j / M + u_j), u_j uniform in [0, 1);
Q(v)_j = M q_j / s. Not biased: E Q(v) = v, and E |Q(v) - v|^2 <= min(c / s^2, sqrt(c) / s) |v|^2 for chunks of c.
Frame: 4 ceil(n / chunk) + ceil(n bits / 8) bytes: M as float32 little-endian for each chunk, then q_j + s in `bits`
bits each, the first in the lowest bits of its byte.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from pflsim.coding.chunks import chunks, decode_levels, encode_levels, level_bytes, require_chunk
from pflsim.coding.codec import Bytes, Shapes


@dataclass(frozen=True)
class QSGD:
    """Levels of a norm."""

    bits: Literal[2, 4, 8] = 4  # of one number, its sign among them
    chunk: int = 512  # numbers that share a norm

    biased: ClassVar[bool] = False
    differences_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_chunk(self.chunk)

    @property
    def _levels(self) -> int:
        levels: int = 2 ** (self.bits - 1) - 1
        return levels

    def variance(self, n: int) -> float:
        c = min(n, self.chunk)
        return min(c / self._levels**2, math.sqrt(c) / self._levels)

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return 4 * chunks(n, self.chunk) + level_bytes(n, self.bits)

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        return encode_levels(v, rng, self.chunk, self._levels, self.bits, "l2")

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        return decode_levels(frame, n, self.chunk, self._levels, self.bits)
