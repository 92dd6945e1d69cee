"""Nothing is changed: numbers travel as float32, as they do without a codec.

Formula: Q(v) = v. Not biased.
Frame: 4 n bytes, float32 little-endian. It is worth naming for `zstd = true` on top, or for `delta` with it.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.codec import Bytes, Shapes


@dataclass(frozen=True)
class Nothing:
    """v as it is."""

    biased: ClassVar[bool] = False
    differences_only: ClassVar[bool] = False

    def variance(self, n: int) -> float:
        return 0.0

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return 4 * n

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        return v.numpy().astype("<f4", copy=False).view(np.uint8)

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        return torch.from_numpy(frame.view("<f4").astype(np.float32))
