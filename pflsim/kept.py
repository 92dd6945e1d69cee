"""What an actor is, as a file and back, bit for bit: tensors, numbers, texts, and containers and records of them.

A file is a row of msgpack values: how many tensors there are, each of them as [type, shape, strides, bytes], and then
the structure that refers to them, so that a tensor which occurs often is kept once and is one tensor again. Nothing in
a file can make anything be run: it only makes those dataclasses and named tuples that the reader knows by name.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from hashlib import sha256
from itertools import chain
from typing import Any, BinaryIO

import msgpack
import numpy as np
import torch
from torch import Tensor

NOT_KEPT: Mapping[str, Any] = {"is_kept": False}
"""Metadata of a dataclass's field that has its default when it is read again."""

_SEQUENCES: dict[str, type] = {"tuple": tuple, "list": list, "deque": deque, "set": set, "frozenset": frozenset}


def write(file: BinaryIO, value: Any) -> str:
    """Write `value`, and give back the sha256 of what was written; of a function only that there is none.

    Raises TypeError for what cannot be kept.
    """
    tensors: dict[int, tuple[int, Tensor]] = {}
    structure = _plain(value, tensors)
    packer, hasher = msgpack.Packer(), sha256()
    packed = (_packed(tensor) for _, tensor in tensors.values())  # one by one: all together they may be large
    for part in chain([len(tensors)], packed, [structure]):
        written = packer.pack(part)
        hasher.update(written)
        file.write(written)
    return hasher.hexdigest()


def read(file: BinaryIO, classes: Sequence[type]) -> Any:
    """What `write` has written, made of these `classes`. Raises ValueError for anything else."""
    unpacker = msgpack.Unpacker(file, strict_map_key=False, max_buffer_size=0)
    try:
        tensors = [_unpacked(*unpacker.unpack()) for _ in range(unpacker.unpack())]
        return _revived(unpacker.unpack(), tensors, {one.__name__: one for one in classes})
    except (msgpack.UnpackException, TypeError, KeyError, IndexError, AttributeError, RuntimeError) as problem:
        raise ValueError(f"it is no kept state ({problem!r:.200})") from problem


def _packed(tensor: Tensor) -> tuple[str, list[int], list[int], bytes]:
    stored = tensor.detach()
    dense = torch.empty_like(stored, memory_format=torch.preserve_format).copy_(stored)  # transposed stays transposed
    flat = dense.as_strided((dense.numel(),), (1,)) if dense.numel() else dense.reshape(-1)
    kind = str(tensor.dtype).removeprefix("torch.")
    return kind, list(dense.shape), list(dense.stride()), flat.view(torch.uint8).numpy().tobytes()


def _unpacked(kind: str, shape: list[int], strides: list[int], content: bytes) -> Tensor:
    dtype = getattr(torch, kind)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{kind} is no type of a tensor")
    tensor = torch.empty_strided(shape, strides, dtype=dtype)
    if not tensor.numel():
        return tensor
    tensor.as_strided((tensor.numel(),), (1,)).copy_(torch.frombuffer(bytearray(content), dtype=dtype))
    return tensor


def _plain(value: Any, tensors: dict[int, tuple[int, Tensor]]) -> Any:
    """Texts and numbers as they are, all else as [what it is, its parts...]."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise TypeError("an integer of more than 64 bits cannot be kept")
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, Tensor):
        place, _ = tensors.setdefault(id(value), (len(tensors), value))
        return ["tensor", place]
    if isinstance(value, Mapping):
        return ["dict", [_plain(part, tensors) for pair in value.items() for part in pair]]
    if is_dataclass(value) and not isinstance(value, type):
        named = [(one.name, getattr(value, one.name)) for one in _kept_fields(value)]
        return ["record", type(value).__name__, [[name, _plain(part, tensors)] for name, part in named]]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = [[name, _plain(part, tensors)] for name, part in zip(value._fields, value, strict=True)]
        return ["record", type(value).__name__, parts]
    if isinstance(value, tuple | list | deque | AbstractSet):
        name = next(name for name, kind in _SEQUENCES.items() if isinstance(value, kind))
        return [name, [_plain(part, tensors) for part in value]]
    if callable(value):
        return None
    raise TypeError(f"a {type(value).__name__} cannot be kept")


def _revived(plain: Any, tensors: Sequence[Tensor], classes: Mapping[str, type]) -> Any:
    if not isinstance(plain, list):
        return plain
    what, *parts = plain
    if what == "tensor":
        return tensors[parts[0]]
    if what == "record":
        name, named = parts
        return _made(classes[name], {key: _revived(part, tensors, classes) for key, part in named})
    revived = [_revived(part, tensors, classes) for part in parts[0]]
    if what == "dict":
        return dict(zip(revived[::2], revived[1::2], strict=True))
    return _SEQUENCES[what](revived)


def _made(kind: type, values: dict[str, Any]) -> Any:
    """A record; where its own mapping is a special one, such as a Counter, it is of that kind again."""
    for one in fields(kind) if is_dataclass(kind) else ():
        if one.name in values and one.default_factory is not MISSING and isinstance(values[one.name], dict):
            special = one.default_factory()
            if isinstance(special, dict):
                special.update(values[one.name])
                values[one.name] = special
    return kind(**values)


def _kept_fields(value: Any) -> Iterator[Any]:
    return (one for one in fields(value) if one.metadata.get("is_kept", True))
