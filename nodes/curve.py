"""CURVE on a run's sockets: what they show to whom they connect, and how much they take of whoever connects.

Keys are made for one run and live no longer. A socket that is bound shows its own; it may connect too, afterwards.
"""

from dataclasses import dataclass

import zmq

HANDSHAKE_MS = 10_000
"""Who connects must have shown a key of the run by then, or is cut off."""
BACKLOG = 128
MOST_WAITING = 1000
"""So many messages of one connection wait to be taken; who sends more has to wait, and its memory is its own."""


@dataclass(frozen=True)
class Keys:
    """A pair of keys, in ZeroMQ's text form."""

    public: bytes
    secret: bytes

    @classmethod
    def new(cls) -> "Keys":
        """A pair that nobody has had before."""
        return cls(*zmq.curve_keypair())

    @classmethod
    def of(cls, secret: bytes) -> "Keys":
        """The pair to which a secret key belongs."""
        return cls(zmq.curve_public(secret), secret)


def limit(socket: zmq.Socket[bytes], most_bytes: int) -> None:
    """Before it is bound: take no frame of more bytes, and let nobody dawdle over the handshake."""
    socket.maxmsgsize = most_bytes
    socket.handshake_ivl = HANDSHAKE_MS
    socket.backlog = BACKLOG
    socket.rcvhwm = MOST_WAITING


def lock(socket: zmq.Socket[bytes], own: Keys, domain: bytes) -> None:
    """Before it is bound: whoever connects must know the public key of `own`, and is judged by a gate."""
    socket.curve_server = True
    socket.curve_publickey, socket.curve_secretkey = own.public, own.secret
    socket.zap_domain = domain


def show(socket: zmq.Socket[bytes], own: Keys, theirs: bytes) -> None:
    """Before it connects: who is there must have the secret key to `theirs`. What was bound before stays as it was."""
    socket.curve_publickey, socket.curve_secretkey = own.public, own.secret
    socket.curve_serverkey = theirs
