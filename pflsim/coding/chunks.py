"""Chunks of a vector that share a scale, numbers rounded to whole levels of it, and levels packed into bits.

A frame of levels is laid out as scales, float32 [m] little-endian for m = ceil(n / chunk), then the levels q + s in
`bits` bits each, the first in the lowest bits; the last byte is filled with zeros.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pflsim.coding.codec import Bytes
from pflsim.errors import BadMessage, DescriptionError

Norm = Literal["max", "l2"]
MOST_CHUNK = 1 << 20


def chunks(n: int, chunk: int) -> int:
    """How many chunks a vector [n] has."""
    return -(-n // chunk)


def level_bytes(n: int, bits: int) -> int:
    """The bytes of n levels."""
    return -(-n * bits // 8)


def require_chunk(chunk: int) -> None:
    """Refuses a chunk that is none."""
    if not 1 <= chunk <= MOST_CHUNK:
        raise DescriptionError("codec.chunk", chunk, f"must be from 1 to {MOST_CHUNK} numbers that share a scale")


def rows(v: Tensor, chunk: int) -> np.ndarray:
    """v [n] as [m, chunk] (or [1, n] if that is all of it), the last row filled with zeros; float32."""
    flat, chunk = v.numpy(), min(chunk, max(1, len(v)))
    whole = chunks(len(flat), chunk) * chunk
    if whole != len(flat):
        flat = np.concatenate([flat, np.zeros(whole - len(flat), dtype=np.float32)])
    return flat.reshape(-1, chunk)


def encode_levels(v: Tensor, rng: np.random.Generator, chunk: int, s: int, bits: int, norm: Norm) -> Bytes:
    """The frame of v [n] on levels -s..s of its chunk's norm, each rounded up or down at random so that the mean is v.

    q_j = floor(s v_j / norm + u_j), u_j uniform in [0, 1).
    """
    parts = rows(v, chunk)
    if norm == "max":
        scales = np.abs(parts).max(axis=1)
    else:
        scales = np.sqrt(np.einsum("mc,mc->m", parts, parts, dtype=np.float64)).astype(np.float32)
    with np.errstate(divide="ignore", over="ignore"):
        per_level = np.where(scales > 0, np.float32(s) / scales, np.float32(0))
    per_level = np.where(np.isfinite(per_level), per_level, np.float32(0))  # numbers too small to be divided by are 0
    q = parts * per_level[:, None]
    q += rng.random(q.shape, dtype=np.float32)
    np.floor(q, out=q)
    np.clip(q, -s, s, out=q)
    q += np.float32(s)
    levels = packed(q.reshape(-1)[: len(v)].astype(np.uint8), bits)
    return np.concatenate([scales.astype("<f4").view(np.uint8), levels])


def decode_levels(frame: Bytes, n: int, chunk: int, s: int, bits: int) -> Tensor:
    """norm q / s, float32 [n]. Raises BadMessage for scales that are not finite, and for levels beyond the last."""
    m, chunk = chunks(n, chunk), min(chunk, max(1, n))
    scales = read_scales(frame, m)
    levels = unpacked(frame[4 * m :], n, bits)
    if n and int(levels.max()) > 2 * s:
        raise BadMessage(f"a level of {int(levels.max()) - s}, the last is {s}")
    q = np.zeros(m * chunk, dtype=np.float32)
    np.subtract(levels, np.float32(s), out=q[:n], dtype=np.float32, casting="unsafe")
    q.reshape(m, chunk)[:] *= (scales / np.float32(s))[:, None]
    return torch.from_numpy(q[:n])


def read_scales(frame: Bytes, m: int) -> np.ndarray:
    """The first m float32 of a frame. Raises BadMessage for what is no scale."""
    scales = frame[: 4 * m].view("<f4")
    if not (np.isfinite(scales) & (scales >= 0)).all():
        raise BadMessage("a scale is not a finite number from 0")
    return scales.astype(np.float32)


def packed(levels: Bytes, bits: int) -> Bytes:
    """Numbers below 2^bits, [n], as bytes; bits is 1, 2, 4 or 8."""
    if bits == 8:
        return levels
    if bits == 1:
        return np.packbits(levels, bitorder="little")
    each = 8 // bits
    if len(levels) % each:
        levels = np.concatenate([levels, np.zeros(-len(levels) % each, dtype=np.uint8)])
    out = levels[::each].copy()
    for position in range(1, each):
        out |= levels[position::each] << (bits * position)
    return out


def unpacked(frame: Bytes, n: int, bits: int) -> Bytes:
    """The n numbers that were packed. Raises BadMessage if what fills the last byte is not zero."""
    if bits == 8:
        return frame
    each = 8 // bits
    if bits == 1:
        out = np.unpackbits(frame, bitorder="little")
    else:
        out = np.empty(len(frame) * each, dtype=np.uint8)
        for position in range(each):
            out[position::each] = (frame >> (bits * position)) & ((1 << bits) - 1)
    if out[n:].any():
        raise BadMessage("the last byte is not filled with zeros")
    return out[:n]
