"""The join token: where a run's launcher is, which run it is, and the keys to it, in one word that can be pasted."""

import base64
import binascii
from dataclasses import dataclass
from hashlib import sha256

import msgpack
from zmq.utils import z85

from pflsim.errors import DescriptionError

PREFIX = "pfl1"
"""Of version 1; a token never begins with a dash, and is told from other words."""
CHECK_BYTES = 4
_EXPECTED = "is no join token, or a part of it is missing or mistyped: copy the whole line that pflsim run has printed"


@dataclass(frozen=True)
class Token:
    """What a host must know to join a run; whoever has it may join, until all hosts have."""

    addresses: tuple[str, ...]
    """Where the launcher may be found, as host:port; which of them can be reached is for the host to try."""
    run_id: bytes
    launcher: bytes = b""
    """The launcher's public key, as text; empty for a run without keys."""
    joining: bytes = b""
    """The secret key of those who join, as text."""

    def __str__(self) -> str:
        keys = [z85.decode(key) for key in (self.launcher, self.joining) if key]
        packed = msgpack.packb([list(self.addresses), self.run_id, *keys])
        whole = base64.urlsafe_b64encode(packed + sha256(packed).digest()[:CHECK_BYTES])
        return PREFIX + whole.decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "Token":
        """The token that was pasted. Raises DescriptionError for anything else."""
        try:
            body = text.removeprefix(PREFIX)
            whole = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            packed, check = whole[:-CHECK_BYTES], whole[-CHECK_BYTES:]
            if not text.startswith(PREFIX) or sha256(packed).digest()[:CHECK_BYTES] != check:
                raise ValueError
            addresses, run_id, *keys = msgpack.unpackb(packed)
            launcher, joining = map(z85.encode, keys) if keys else (b"", b"")
            return cls(tuple(map(str, addresses)), bytes(run_id), launcher, joining)
        except (ValueError, TypeError, binascii.Error, msgpack.UnpackException) as problem:
            shown = f"{text[:8]}… ({len(text)} characters)"
            raise DescriptionError("--join", shown, _EXPECTED) from problem
