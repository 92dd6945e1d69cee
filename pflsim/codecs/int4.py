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

from pflsim.coding.levels import Levels


@dataclass(frozen=True)
class FourBits(Levels):
    """15 levels a chunk."""

    chunk: int = 64  # numbers that share a scale

    largest: ClassVar[int] = 7
    bits: ClassVar[int] = 4
