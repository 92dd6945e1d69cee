"""The k largest numbers travel, with where they stand; all others are left out.

Source: Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018.
Formula: k = ceil(share n); Q(v)_j = v_j for the k largest |v_j| (of equal ones the first), else 0. Biased:
`error_feedback = true` mends that.
Index coding: the positions, ascending, as uint16 (n up to 65536) or uint32, little-endian; or a bitmap of n bits, the
first in the lowest bit of its byte, where that is shorter (or n above 2^32).
Frame: min(w k, ceil(n / 8)) + 4 k bytes with w = 2 for n up to 65536, else 4: first where, then the k numbers in
float32.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.chunks import level_bytes, packed, unpacked
from pflsim.coding.codec import Bytes, Shapes
from pflsim.errors import BadMessage, DescriptionError


@dataclass(frozen=True)
class TopK:
    """The largest share of the numbers."""

    share: float = 0.01  # of the numbers that travel

    biased: ClassVar[bool] = True
    differences_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise DescriptionError("codec.share", self.share, "must be above 0 and at most 1")

    def variance(self, n: int) -> float:
        return 1 - self._k(n) / max(1, n)

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        return self._index_bytes(n) + 4 * self._k(n)

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        flat, n, k = v.numpy(), len(v), self._k(len(v))
        size = np.abs(flat)
        least = np.partition(size, n - k)[n - k]
        above = np.flatnonzero(size > least)
        where = np.sort(np.concatenate([above, np.flatnonzero(size == least)[: k - len(above)]]))
        if self._is_bitmap(n):
            mask = np.zeros(n, dtype=np.uint8)
            mask[where] = 1
            coded = packed(mask, 1)
        else:
            coded = where.astype(_index_type(n)).view(np.uint8)
        return np.concatenate([coded, flat[where].astype("<f4").view(np.uint8)])

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        begins = self._index_bytes(n)
        if self._is_bitmap(n):
            where = np.flatnonzero(unpacked(frame[:begins], n, 1))
            if len(where) != self._k(n):
                raise BadMessage(f"{len(where)} numbers are marked, {self._k(n)} came")
        else:
            where = frame[:begins].copy().view(_index_type(n)).astype(np.int64)
            if (np.diff(where) <= 0).any() or int(where[-1]) >= n:
                raise BadMessage(f"the positions do not ascend below {n}")
        out = torch.zeros(n)
        out[torch.from_numpy(where)] = torch.from_numpy(frame[begins:].copy().view("<f4").astype(np.float32))
        return out

    def _k(self, n: int) -> int:
        return min(n, ceil(self.share * n))

    def _is_bitmap(self, n: int) -> bool:
        return level_bytes(n, 1) < _index_type(n).itemsize * self._k(n) or n > 1 << 32

    def _index_bytes(self, n: int) -> int:
        return level_bytes(n, 1) if self._is_bitmap(n) else _index_type(n).itemsize * self._k(n)


def _index_type(n: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2" if n <= 1 << 16 else "<u4")
