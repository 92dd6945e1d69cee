"""Who is on the network of a run and means ill: bytes, and messages of the library, thrown at every port of it."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgpack
import zmq

from nodes.curve import Keys, show
from pflsim.messages.wire import PROTOCOL
from tests.machines import throw

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
KINDS = (
    "JOIN",
    "RESULT",
    "STATE",
    "PUSH",
    "HELLO",
    "STOP",
    "WAITING",
    "FINISHED",
    "PROMISE",
    "LICENCE",
    "BYE",
    "PLACES",
)
MAPS = ("hello", "beat", "built", "started", "ended", "leaving", "failed", "gone", "welcome", "start", "end", "refused")


def throw_bytes(ports: Sequence[int], chance: random.Random, cases: int) -> None:
    """Random bytes, and the beginning of a connection with all that can be wrong after it."""
    for _ in range(cases):
        mechanism = chance.choice([b"CURVE", b"NULL", b"PLAIN", b"GSSAPI", chance.randbytes(20)])
        greeting = GREETING + mechanism.ljust(20, b"\0")[:20] + bytes(32)
        after = chance.choice([b"", b"\x04\x06", b"\x02" + b"\xff" * 8, b"\x06\xff" + bytes(7), b"\x00\x00"])
        data = (
            greeting[: chance.choice([64, 64, chance.randrange(64)])] + after + chance.randbytes(chance.randrange(400))
        )
        with suppress(OSError):
            throw(chance.choice(ports), chance.choice([data, chance.randbytes(chance.randrange(1, 3000))]))


def messages(run_id: bytes, chance: random.Random) -> Iterator[list[bytes]]:
    """Those that no stranger should be heard with, and what is left of them when they are mutilated."""
    while True:
        actors = ("server", "coordinator", "c000", "c001", "launcher")
        header = [PROTOCOL, run_id, chance.choice(KINDS), chance.choice(actors), chance.choice(actors)]
        header += [
            chance.randrange(9),
            1,
            0,
            chance.randrange(3),
            1,
            [["w", "f4", [2], "raw"]],
            {"place": ["x", "tcp://x"]},
        ]
        stamp = [0, 0, [0, 1, 1.0, 100, 100.0, 100.0], 0]
        word = {"what": chance.choice(MAPS), "run_id": b"not this", "name": "x", "versions": {}, "reason": "so I say"}
        word |= {"cores": chance.choice([1, "x"]), "memory_bytes": 1, "clients": chance.choice([None, -1, {}])}
        word |= {"process": "c000", "code": 1, "processor_s": 1.0, "plan": {"has": 1}, "pids": {"c000": 1}}
        whole = chance.choice([[msgpack.packb(header), msgpack.packb(stamp), bytes(8)], [msgpack.packb(word)]])
        if chance.random() < 0.5:
            at = chance.randrange(len(whole))
            changed = bytearray(whole[at])
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            whole[at] = bytes(changed[: chance.choice([None, chance.randrange(len(changed))])])
        yield whole


def send_messages(
    ports: Sequence[int], run_id: bytes, chance: random.Random, cases: int, keys: tuple[Keys, bytes] | None = None
) -> None:
    """So many messages to each port, by sockets of several kinds; with the key of the token, or without any."""
    with zmq.Context() as context:
        for port in ports:
            kind = chance.choice([zmq.DEALER, zmq.PUSH, zmq.ROUTER, zmq.REQ])
            with context.socket(zmq.DEALER if kind in (zmq.ROUTER, zmq.REQ) else kind) as socket:
                socket.linger = 200
                if keys is not None:
                    show(socket, *keys)
                socket.connect(f"tcp://127.0.0.1:{port}")
                for frames, _ in zip(messages(run_id, chance), range(cases), strict=False):
                    with suppress(zmq.Again):
                        socket.send_multipart(frames, zmq.DONTWAIT)
