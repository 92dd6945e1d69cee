"""One sha256 over everything that an actor has learned, the same wherever and however it ran."""

import dataclasses
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import torch


def digest_of(state: Any) -> bytes:
    """The sha256 of a state made of dataclasses, mappings, sequences, tensors, arrays, numbers and text."""
    hasher = sha256()
    for piece in _pieces(state):
        hasher.update(piece)
    return hasher.digest()


def _pieces(value: Any) -> Iterable[Any]:
    if isinstance(value, torch.Tensor):
        yield f"tensor {value.dtype} {tuple(value.shape)}".encode()
        yield value.detach().contiguous().numpy().reshape(-1).view(np.uint8).data
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype.str} {value.shape}".encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    elif dataclasses.is_dataclass(value):
        yield from _pieces({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in sorted(value, key=str):
            yield f"{type(key).__name__} {key!r}".encode()
            yield from _pieces(value[key])
    elif isinstance(value, list | tuple):
        yield f"sequence {len(value)}".encode()
        for item in value:
            yield from _pieces(item)
    elif value is None or isinstance(value, bool | int | float | str | bytes):
        yield f"{type(value).__name__} {value!r}".encode()
    else:
        raise TypeError(f"a state cannot hold a {type(value).__name__}")
