"""The one source of randomness: `stream(seed, *path)`, an independent generator per actor, purpose and counter.

A stream is a Philox counter generator whose key is a hash of the seed and the path, so that no stream depends on
which others were made, in which order, or in which process.
"""

import hashlib

import numpy as np


def stream(seed: int, *path: str | int) -> np.random.Generator:
    """The generator that belongs to `path`, such as `stream(7, "batch", client, visit)`."""
    name = "\x1f".join((str(seed), *(f"{type(part).__name__[0]}{part}" for part in path)))
    key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


def torch_seed(generator: np.random.Generator) -> None:
    """Point torch's global generator, which only dropout draws from, at `generator`'s next number."""
    import torch

    torch.manual_seed(int(generator.integers(2**63)))
