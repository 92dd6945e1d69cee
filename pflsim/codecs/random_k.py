"""k numbers drawn at random travel; both ends draw them from the same seed, so that no positions do.

Source: Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018; Konecny et al.: Federated Learning:
Strategies for Improving Communication Efficiency, 2016 (random masks from a seed).
Formula: k = ceil(share n); Q(v)_j = c v_j for k positions drawn without replacement, else 0. With `scaled` c = n / k,
which is not biased: E Q(v) = v. Without it c = 1, which is biased, and what error feedback and a difference to the last
message need: scaled up, what is carried over would grow from message to message.
Index coding: by a seed. The receiver draws the positions by `stream(seed, "random-k")`.choice(n, k), ascending.
Frame: 8 + 4 k bytes: the seed, 64 bits little-endian, then the k numbers in float32.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.codec import Bytes, Shapes
from pflsim.errors import DescriptionError
from pflsim.rng import stream


@dataclass(frozen=True)
class RandomK:
    """A share of the numbers, drawn anew each time."""

    share: float = 0.1  # of the numbers that travel
    scaled: bool = True  # whether they are multiplied by n / k, so that their mean is right

    differences_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise DescriptionError("codec.share", self.share, "must be above 0 and at most 1")

    @property
    def biased(self) -> bool:
        return not self.scaled

    def variance(self, n: int) -> float:
        k = max(1, self._k(n))
        return n / k - 1 if self.scaled else 1 - k / max(1, n)

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return 8 + 4 * self._k(n)

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        seed = int(rng.integers(2**63))
        kept = v.numpy()[self._where(seed, len(v))]
        if self.scaled:
            kept = kept * np.float32(len(v) / len(kept))
        return np.concatenate([np.array([seed], dtype="<u8").view(np.uint8), kept.astype("<f4").view(np.uint8)])

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        seed = int(frame[:8].copy().view("<u8")[0])
        out = torch.zeros(n)
        out[torch.from_numpy(self._where(seed, n))] = torch.from_numpy(frame[8:].copy().view("<f4").astype(np.float32))
        return out

    def _k(self, n: int) -> int:
        return min(n, ceil(self.share * n))

    def _where(self, seed: int, n: int) -> np.ndarray:
        return np.sort(stream(seed, "random-k").choice(n, self._k(n), replace=False, shuffle=False))
