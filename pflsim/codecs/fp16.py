"""Half precision (IEEE 754 binary16): 11 bits of significand, numbers up to 65504.

Formula: the nearest half, ties to even; what is larger than 65504 becomes 65504 of its sign. Biased (it rounds to the
nearest), by at most 2^-11 |v_j|, and below 2^-14 by at most 2^-25.
Frame: 2 n bytes, halves little-endian.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.codec import Bytes, Shapes

_LARGEST = 65504.0


@dataclass(frozen=True)
class Half:
    """v_j in 16 bits."""

    biased: ClassVar[bool] = True
    differences_only: ClassVar[bool] = False

    def variance(self, n: int) -> float:
        return 2.0**-22

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return 2 * n

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        return v.clamp(-_LARGEST, _LARGEST).half().numpy().astype("<f2", copy=False).view(np.uint8)

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        return torch.from_numpy(frame.view("<f2").astype(np.float32))
