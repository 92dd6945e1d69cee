"""What codecs of whole levels share: those of a grid between -max and max of each chunk of numbers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pflsim.coding.chunks import chunks, decode_levels, encode_levels, level_bytes, require_chunk
from pflsim.coding.codec import Bytes, Shapes


@dataclass(frozen=True)
class Levels:
    """Levels -`largest` to `largest` of the chunk's largest number, in `bits` bits each."""

    chunk: int

    largest: ClassVar[int]
    bits: ClassVar[int]
    biased: ClassVar[bool] = False
    differences_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_chunk(self.chunk)

    def variance(self, n: int) -> float:
        """The largest mean square error of n numbers, by their sum of squares."""
        return min(n, self.chunk) / (4 * self.largest**2)

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        """How long the frame of n numbers is."""
        return 4 * chunks(n, self.chunk) + level_bytes(n, self.bits)

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        """The frame of v [n]."""
        return encode_levels(v, rng, self.chunk, self.largest, self.bits, "max")

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        """What its receiver has of it, [n]."""
        return decode_levels(frame, n, self.chunk, self.largest, self.bits)
