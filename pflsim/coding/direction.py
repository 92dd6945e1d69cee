"""One direction of `[codec]`: which tensors of a message travel encoded, as what, and what the other end makes of it.

A tensor may travel as the difference to a *base* that its receiver has too; the header then names the base by a number,
0 for none. What cannot be encoded travels as it is: other types than float32, what is small, what is not finite (so
that a diverged upload is still seen as one), and what needs a base that its receiver is not known to have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.codec import Bytes, Codec, Shapes
from pflsim.errors import BadMessage

LEAST = 64
"""Tensors with fewer numbers travel as they are: counts, labels, losses."""
LARGEST = 1e18
"""So does what has a larger number: its square must be a float32."""
MOST_GROWTH = 256
"""A tensor is refused that is so many times as large as any of the first message of its direction."""
ZSTD_LEVEL = 3

Tensors = dict[str, Tensor]
Base = tuple[int, Tensor]  # its number, and what the receiver has
Draws = Callable[[str], np.random.Generator]  # the stream of a tensor, by its name


class Coded(NamedTuple):
    """What a header says of an encoded tensor."""

    codec: str
    base: int
    shape: tuple[int, ...]

    @property
    def raw_bytes(self) -> int:
        """What it would weigh without a codec."""
        return 4 * prod(self.shape)


class Sent(NamedTuple):
    """A message's tensors on their way."""

    tensors: Tensors  # frames as uint8, and what travels as it is
    coded: dict[str, Coded]  # which of them are frames
    seen: Tensors  # what the receiver will have
    residuals: Tensors  # what it lacks of what it should have got, by tensor, where that is carried over


Made = dict[int, tuple[Tensor, Tensor, Coded, Tensor]]
"""By the identity of a tensor: that tensor, its frame, what the header says, and what is seen."""


@dataclass(frozen=True)
class Direction:
    """How tensors travel one way; `key` is where the description says so."""

    key: str
    name: str
    codec: Codec
    tensors: tuple[str, ...] = ()  # only these; all where none are named
    error_feedback: bool = False
    delta: bool = False
    zstd: bool = False
    layouts: tuple[Shapes, ...] = ()  # the parameters of each model that a vector may be
    most_numbers: int = 1 << 32  # a received tensor has at most so many

    @property
    def label(self) -> str:
        """What the header calls it."""
        return f"{self.name}+zstd" if self.zstd else self.name

    def applies(self, name: str, tensor: Tensor) -> bool:
        """Whether a tensor is one that is encoded, finite or not."""
        is_meant = not self.tensors or name in self.tensors
        return is_meant and tensor.dtype == torch.float32 and tensor.numel() >= LEAST

    def frame_bytes(self, tensors: Mapping[str, Tensor]) -> list[int]:
        """The lengths of the frames of a message, encoded where it can be; before zstd, which has no formula."""
        return [
            self.codec.frame_bytes(tensor.numel(), self._shapes(tuple(tensor.shape)))
            if self.applies(name, tensor)
            else tensor.numel() * tensor.element_size()
            for name, tensor in tensors.items()
        ]

    def sent(
        self,
        tensors: Tensors,
        draws: Draws,
        bases: Callable[[str, Tensor], Sequence[Base]] | None = None,
        residuals: Mapping[str, Tensor] | None = None,
        made: Made | None = None,
    ) -> Sent:
        """How `tensors` travel. With `bases` they travel as differences to the nearest of these, or as they are.

        `residuals` are what earlier messages left out. What is in `made` is not encoded again, and what is encoded
        here is put there; only without the other two.
        """
        out = Sent({}, {}, {}, dict(residuals or {}))
        for name, tensor in tensors.items():
            out.tensors[name] = out.seen[name] = tensor
            if not self.applies(name, tensor):
                continue
            if made is not None and id(tensor) in made:
                _, out.tensors[name], out.coded[name], out.seen[name] = made[id(tensor)]
                continue
            x = tensor.detach().contiguous().view(-1)
            base = _nearest(x, bases(name, tensor)) if bases else (0, None)
            if base is not None:
                self._encode(name, tensor, x, base, draws, out)
            if made is not None and name in out.coded:
                made[id(tensor)] = (tensor, out.tensors[name], out.coded[name], out.seen[name])
        return out

    def _encode(
        self, name: str, tensor: Tensor, x: Tensor, base: tuple[int, Tensor | None], draws: Draws, out: Sent
    ) -> None:
        number, known = base
        v = x if known is None else x - known
        left = out.residuals.get(name)
        if self.error_feedback and left is not None and left.shape == v.shape:
            v = v + left
        if not float(v.abs().max()) <= LARGEST:  # nor if it is nan
            return
        shape = tuple(tensor.shape)
        frame = self.codec.encode(v, draws(name), self._shapes(shape))
        came = self.codec.decode(frame, len(v), self._shapes(shape))
        out.tensors[name] = torch.from_numpy(_compressed(frame) if self.zstd else frame)
        out.coded[name] = Coded(self.label, number, shape)
        out.seen[name] = (came if known is None else known + came).view(shape)
        if self.error_feedback:
            out.residuals[name] = v - came

    def unpacked(self, coded: Coded, frame: Tensor) -> Tensor:
        """What came in a frame: a tensor, or its difference to the base. Raises BadMessage for what cannot be."""
        n = prod(coded.shape)
        if coded.codec != self.label:
            raise BadMessage(f"it is encoded by {coded.codec!r:.40}, not by {self.label}")
        if coded.base and not self.delta:
            raise BadMessage(f"it is a difference to {coded.base}, and none travel there")
        if not LEAST <= n <= self.most_numbers:
            raise BadMessage(f"it has {n} numbers; from {LEAST} to {self.most_numbers} travel encoded")
        shapes, raw = self._shapes(coded.shape), frame.numpy()
        expected = self.codec.frame_bytes(n, shapes)
        if self.zstd:
            raw = _decompressed(raw, expected)
        if len(raw) != expected:
            raise BadMessage(f"it has {len(raw)} bytes, as {coded.codec} it has {expected}")
        return self.codec.decode(raw, n, shapes).view(coded.shape)

    def _shapes(self, shape: tuple[int, ...]) -> Shapes:
        """The parameters in a tensor: of the model, or of so many models, or the tensor itself."""
        for layout in self.layouts:
            if shape and shape[-1] == sum(map(prod, layout)):
                return layout * prod(shape[:-1])
        return (shape,)


def restored(tensors: Tensors, coded: Mapping[str, Coded], base_of: Callable[[str, Coded], Tensor | None]) -> Tensors:
    """What a receiver has of a message whose frames are unpacked: differences are added to their bases.

    Raises LookupError, naming the tensor, where there is no such base.
    """
    whole = dict(tensors)
    for name, one in coded.items():
        if one.base:
            base = base_of(name, one)
            if base is None or base.shape != tensors[name].shape:
                raise LookupError(f"its tensor {name!r} is a difference to something that is not there ({one.base})")
            whole[name] = base + tensors[name]
    return whole


def candidates(down: Mapping[str, Tensor], shape: tuple[int, ...]) -> list[Base]:
    """What an answer of this shape may be a difference to: what came down, and what it is made of; from 1 on."""
    found: list[Tensor] = []
    for name in sorted(down):
        tensor = down[name]
        if tensor.dtype == torch.float32 and tuple(tensor.shape) == shape:
            found.append(tensor)
        elif tensor.dtype == torch.float32 and tuple(tensor.shape[1:]) == shape:
            found += list(tensor)
    return list(enumerate(found, start=1))


def _nearest(x: Tensor, bases: Sequence[Base]) -> tuple[int, Tensor | None] | None:
    """The base from which it is the least way to x, the first of equal ones; None if there is none.

    The base 0 is nothing at all: it is the nearest to what is a difference already.
    """
    best: tuple[int, Tensor | None] | None = None
    least = float("inf")
    for number, base in bases:
        flat = base.reshape(-1) if number else None
        way = float((x if flat is None else x - flat).square().sum(dtype=torch.float64))
        if way < least:
            best, least = (number, flat), way
    return best


def _compressed(frame: Bytes) -> Bytes:
    import zstandard  # here, as few runs need it

    return np.frombuffer(bytearray(zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(frame.data)), dtype=np.uint8)


def _decompressed(frame: Bytes, expected: int) -> Bytes:
    """The `expected` bytes in a zstd frame; it is not opened if it says that it has others."""
    import zstandard

    try:
        told = zstandard.get_frame_parameters(frame.data)
        if told.content_size != expected:
            raise BadMessage(f"its zstd frame holds {told.content_size} bytes, {expected} are needed")
        plain = zstandard.ZstdDecompressor().decompress(frame.data, max_output_size=expected, allow_extra_data=False)
    except zstandard.ZstdError as problem:
        raise BadMessage(f"it is no zstd frame ({problem})") from problem
    return np.frombuffer(plain, dtype=np.uint8)
