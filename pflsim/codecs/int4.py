"""4-bit numbers on a grid that each chunk of numbers has to itself, rounded up or down at random.

Source: stochastic rounding (Gupta, Agrawal, Gopalakrishnan, Narayanan: Deep Learning with Limited Numerical Precision,
ICML 2015) on a grid between -max and max of the chunk.
Formula: M = max |v_j| of the chunk; q_j = floor(7 v_j / M + u_j), u_j uniform in [0, 1); Q(v)_j = M q_j / 7.
Not biased: E Q(v) = v.
Frame: 4 ceil(n / chunk) + ceil(n / 2) bytes: M as float32 little-endian for each chunk, then q_j + 7 in four bits
each, the first in the lower half of its byte.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pflsim.coding.chunks import chunks, decode_levels, encode_levels, level_bytes, require_chunk
from pflsim.coding.codec import Bytes, Shapes

_LEVELS, _BITS = 7, 4


@dataclass(frozen=True)
class FourBits:
    """15 levels a chunk."""

    chunk: int = 64  # numbers that share a scale

    biased: ClassVar[bool] = False
    differences_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_chunk(self.chunk)

    def variance(self, n: int) -> float:
        return min(n, self.chunk) / (4 * _LEVELS**2)

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return 4 * chunks(n, self.chunk) + level_bytes(n, _BITS)

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        return encode_levels(v, rng, self.chunk, _LEVELS, _BITS, "max")

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        return decode_levels(frame, n, self.chunk, _LEVELS, _BITS)
