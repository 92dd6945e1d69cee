"""The interface of a codec: what a file in `codecs/` has to offer.

A codec is a frozen dataclass whose fields are its settings. It turns a float32 vector [n] into one frame, and a frame
back into exactly what its receiver sees; it keeps nothing, and draws only from the stream that it is given.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from torch import Tensor

Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
Shapes: TypeAlias = tuple[tuple[int, ...], ...]  # the parameters that a vector is made of, in order; () if unknown


class Codec(Protocol):
    """What the file of a codec must say in its docstring: source, formula, frame length, index coding, bias."""

    @property
    def biased(self) -> bool:
        """Whether the mean of what the receiver sees is not what was sent."""

    @property
    def differences_only(self) -> bool:
        """Whether it leaves so much out that only a difference may travel by it, never a model itself."""

    def variance(self, n: int) -> float:
        """Omega in E |Q(v) - v|^2 <= omega |v|^2 for every v [n]; what is carried over vanishes only below 1."""

    def frame_bytes(self, n: int, shapes: Shapes = ()) -> int:
        """The exact length of the frame of a vector [n]."""

    def encode(self, v: Tensor, rng: np.random.Generator, shapes: Shapes = ()) -> Bytes:
        """The frame of v [n], float32, of finite numbers up to `pflsim.coding.direction.LARGEST`."""

    def decode(self, frame: Bytes, n: int, shapes: Shapes = ()) -> Tensor:
        """What the receiver sees, float32 [n], of a frame of the right length; BadMessage for one that cannot be."""


REQUIRED = ("biased", "differences_only", "variance", "frame_bytes", "encode", "decode")


def missing(found: Callable[..., object]) -> list[str]:
    """What a class lacks to be a codec."""
    return [name for name in REQUIRED if not hasattr(found, name)]
