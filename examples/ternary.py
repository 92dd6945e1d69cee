"""A codec of one's own: TernGrad, three values a number (Wen et al., NeurIPS 2017, arXiv 1705.07878).

    pflsim run launch/runs/codec-fp16.toml --set 'codec.up={name="examples/ternary.py:Ternary",delta=true}'

Of every number travels a sign, or nothing: with probability |v| / s, where s is the largest |v|, it becomes s times its
sign, else 0. In the mean that is v. Here a number takes two bits.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from pflsim.coding.chunks import read_scales
from pflsim.coding.codec import Bytes, Shapes


@dataclass(frozen=True)
class Ternary:
    """What `encode` makes must have exactly `frame_bytes`; fields of the class would be its settings."""

    biased: ClassVar[bool] = False
    differences_only: ClassVar[bool] = True

    def variance(self, n: int) -> float:
        """The expected squared error, the sum of |v_j| s - v_j^2, is at most so many times |v|^2."""
        return math.sqrt(n) - 1

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        """s as a float32, and a byte for every four numbers."""
        return 4 + -(-n // 4)

    def encode(self, v: torch.Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        """All randomness is that of `rng`, so that the same run gives the same bits."""
        values = v.numpy()
        scale = np.abs(values).max(initial=0.0).astype("<f4")
        kept = rng.random(len(values), dtype=np.float32) * scale < np.abs(values)
        levels = np.zeros(-(-len(values) // 4) * 4, dtype=np.uint8)
        levels[: len(values)] = np.where(kept, np.where(values > 0, 1, 2), 0)
        packed = (levels.reshape(-1, 4) << np.array([0, 2, 4, 6], dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
        return np.concatenate([np.frombuffer(scale.tobytes(), dtype=np.uint8), packed])

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> torch.Tensor:
        """What the receiver makes of it, [n]."""
        scale = read_scales(frame, 1)[0]
        levels = (frame[4:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
        signs = np.array([0.0, 1.0, -1.0, 0.0], dtype=np.float32)[levels.reshape(-1)[:n]]
        return torch.from_numpy(signs * scale)
