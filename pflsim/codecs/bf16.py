"""bfloat16: the upper half of a float32, with its whole range and 8 bits of significand.

Formula: the nearest bfloat16, ties to even. Biased (it rounds to the nearest), by at most 2^-8 |v_j|.
Frame: 2 n bytes, the upper 16 bits of each float32, little-endian.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.codec import Bytes, Shapes


@dataclass(frozen=True)
class Brain:
    """v_j in 16 bits."""

    biased: ClassVar[bool] = True
    differences_only: ClassVar[bool] = False

    def variance(self, n: int) -> float:
        return 2.0**-16

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return 2 * n

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        return v.bfloat16().view(torch.int16).numpy().astype("<i2", copy=False).view(np.uint8)

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        return torch.from_numpy((frame.view("<u2").astype(np.uint32) << 16).view(np.float32))
