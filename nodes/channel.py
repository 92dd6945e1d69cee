"""A pair of processes of one machine that talk in small msgpack maps over a Unix socket pair."""

import socket
import struct
from typing import Any

import msgpack

_LENGTH = struct.Struct("<I")


class Channel:
    """One end; `say` sends a map, `hear` gives the next one or None when the other end has gone."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple["Channel", "Channel"]:
        """Both ends of a new channel."""
        here, there = socket.socketpair()
        return cls(here), cls(there)

    @classmethod
    def from_descriptor(cls, descriptor: int) -> "Channel":
        """The end that this process inherited."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """The descriptor, to select on or to pass on."""
        return self._end.fileno()

    def say(self, what: str, **values: Any) -> None:
        """Send one map; does nothing when the other end has gone, which `hear` will tell, or this one is closed."""
        packed = msgpack.packb({"what": what, **values})
        try:
            self._end.sendall(_LENGTH.pack(len(packed)) + packed)
        except OSError:
            return

    def hear(self) -> dict[str, Any] | None:
        """The next map, or None when the other end has gone."""
        head = self._exactly(_LENGTH.size)
        if head is None:
            return None
        body = self._exactly(_LENGTH.unpack(head)[0])
        return None if body is None else msgpack.unpackb(body)

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _exactly(self, size: int) -> bytes | None:
        received = b""
        while len(received) < size:
            try:
                piece = self._end.recv(size - len(received))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            received += piece
        return received
