"""A client with valid keys that means ill: before it answers as it should, it sends what no client may send."""

import gc
import pickle
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgpack
import torch

from nodes.facts import FactSender
from nodes.kept_files import PIECE
from nodes.mailroom import Mailroom
from nodes.standstill import CHECKPOINT, UNDER_WAY
from pflsim.algorithms.fedavg import FedAvg
from pflsim.federation import Tensors
from pflsim.learning.task import Task
from pflsim.messages.port import Port
from pflsim.messages.wire import PROTOCOL

Frames = list[bytes]
HOW = Literal["nothing", "messages", "facts", "flood", "wrong shapes only", "checkpoints"]
MALICIOUS, NAME = 3, "c003"
COUNT, LIES, FLOOD = 175, 27, 20_000
WRONG_ROUND = 4


class Pickled:
    """Whoever unpickles this ends at once."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import os; os._exit(66)",)


@dataclass(frozen=True)
class Malice(FedAvg):
    """FedAvg; what one client does beside is seen by its process, not by the method."""

    how: HOW = "nothing"

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        you, up = super().client_step(you, down, task)
        mailroom = next((one for one in _all(Mailroom) if NAME in one._ports), None)
        if task.client != MALICIOUS or mailroom is None:  # the server takes a step, too, to know what to expect
            return you, up
        port, facts = mailroom._ports[NAME], _all(FactSender)[0]
        if self.how == "wrong shapes only":
            return you, {"u": torch.zeros(1)}
        if self.how == "facts":
            batches = list(lies(port, facts._process))
            assert len(batches) == LIES
            for batch in batches:
                facts._socket.send(batch)
        elif self.how == "checkpoints":
            for fact in false_states(task.round + 1):
                facts._socket.send(msgpack.packb([facts._process, [fact]]))
        elif self.how == "flood":
            for _ in range(FLOOD):
                mailroom._socket.send_multipart([b"\xc1" * 50, b"", b"x" * 100])
        elif self.how == "messages":
            messages = list(bad_messages(port, {"u": up["u"]}, random.Random(task.round)))
            assert len(messages) == COUNT
            for frames in messages:
                mailroom._socket.send_multipart(frames)
        return you, up


def _all(kind: type) -> list[Any]:
    return [one for one in gc.get_objects() if type(one) is kind]


def bad_messages(port: Port, up: Tensors, chance: random.Random) -> Iterator[Frames]:
    """Each is sent by a client that is asked for a RESULT and owes it."""
    assert port._asked is not None
    tensor = up["u"].numpy().tobytes()
    size = len(up["u"])
    right = [PROTOCOL, port._departures._run_id, "RESULT", port.name, "server", 5_000]
    right += [port._asked.round, port._asked.version, port._asked.work_id, 1, [["u", "f4", [size], "raw"]], {}]
    flight = [port.now_ns, 1_000_000, 1.0, 5_000, 5_000.0, 5_000.0]
    stamp = [port.now_ns, 0, flight, 0]

    def message(at: int = 2, value: Any = "RESULT", stamp: Any = stamp, *frames: bytes) -> Frames:
        header = [*right[:at], value, *right[at + 1 :]]
        return [msgpack.packb(header), msgpack.packb(stamp), *(frames or (tensor,))]

    def of_kind(kind: str, facts: Any = None, work_id: int = 0) -> Frames:
        header = [*right[:2], kind, *right[3:8], work_id, 0, [], {} if facts is None else facts]
        return [msgpack.packb(header), msgpack.packb([port.now_ns, 0, None, 0])]

    whole = message()
    yield from ([b""], [chance.randbytes(200)] * 3, [pickle.dumps(Pickled())] * 2, [whole[0], whole[1]])
    yield [b"\xdd\xff\xff\xff\xff", whole[1], tensor]
    yield [b"\xdc" * 2000, whole[1]]
    yield [b"\x91" * 100_000 + b"\x90", whole[1]]
    yield [bytes(2_000_000), whole[1]]
    yield message(10, [["u", "f4", [1 << 40], "raw"]])
    yield message(10, [["u", "f4", [size - 1], "raw"]])
    yield message(10, [["u", "f4", [size], ["top-k", 7]]])
    yield message(10, [["u", "f4", [size], [[], {}]]])
    for shape, dtype in (
        ([1], "f4"),
        ([size, 1], "f4"),
        ([size // 2], "f8"),
        ([2, size // 2], "f4"),
        ([4 * size], "i1"),
    ):
        item = {"f4": 4, "f8": 8, "i1": 1}[dtype]
        count = torch.Size(shape).numel()
        yield message(10, [["u", dtype, shape, "raw"]], stamp, tensor[: count * item])
    yield message(10, [["v", "f4", [size], "raw"]])
    yield message(10, [["u", "f4", [size], "raw"]] * 2, stamp, tensor, tensor)
    yield message(10, [["u", "f4", [size], "raw"], ["v", "u1", [3], "raw"]], stamp, tensor, b"abc")
    for at, values in {
        0: (0, "2", None),
        1: (b"", b"8 bytes.", None),
        2: ("LOST", "SHOUT", 7),
        3: ("c000", "server", "launcher", "", None, ["c003"]),
        4: ("c000", "nobody", 3),
        5: (-1, 1 << 63, 1.5, True, "1"),
        6: (0, -1, 10**9, 1 << 63),
        8: (0, port._asked.work_id + 1, port._asked.work_id + 10**6, 1 << 64 - 1),
        9: (1 << 62, -5, 0.5),
        11: ([], {"loss": "x"}, {"loss": [1] * 99}, {1: 2}, {"deep": _deep(200)}),
    }.items():
        for value in values:
            yield message(at, value)
    for at, values in {
        0: (-1, 1.5, float("nan"), True, 1 << 63, None),
        1: (-1, 0.5, 1 << 63),
        2: (None, [], [1, 2], flight[:-1], [-1, *flight[1:]], [*flight[:3], 0, 0.0, 0.0], [1 << 62, *flight[1:]]),
        3: (-1, 0.5, "x"),
    }.items():
        for value in values:
            yield message(2, "RESULT", [*stamp[:at], value, *stamp[at + 1 :]])
    for flight_ in ([port.now_ns, 0, float("nan"), 5_000, 5_000.0, 5_000.0], [0, 0, 1.0, 5_000, 9.0, float("inf")]):
        yield message(2, "RESULT", [port.now_ns, 0, flight_, 0])
    for kind in ("STOP", "WORK", "CANCEL", "EVAL", "PROBE", "LICENCE", "TELL", "BEGIN", "PLACES", "PUSH", "WAITING"):
        yield of_kind(kind)
    for facts in (
        {},
        {"global": {"test": [5, 1, 0.0]}},
        {"global": {"test": [1, 2]}},
        {"x": 1},
        {"x": {"test": [1, 2, 0.5]}},
    ):
        yield of_kind("EVAL_RESULT", facts)
    for facts in ({}, {"digest": b"x", "trace": 1}, {"digest": bytes(32), "trace": bytes(32)}):
        yield of_kind("STATE", facts)
    for facts in ({"never": []}, {"never": {}}, {"never": "JOIN"}, {"never": "EVAL_RESULT"}, {}, {"not_before_ns": -1}):
        yield of_kind("PROMISE", facts)
    for not_before_ns in (1.5, "x", 1 << 62, True, float("nan"), [1]):
        yield of_kind("PROMISE", {"not_before_ns": not_before_ns}, port._asked.work_id)
    yield from (
        of_kind("JOIN"),
        of_kind("GONE", {}, 10**6),
        of_kind("LOSS", {"loss": 1.0}),
        of_kind("LOSS", {"loss": "x"}),
    )
    unasked = message(8, 10**6)  # whatever is changed in it, it does not become the right answer
    for _ in range(60):
        frames = [bytearray(frame) for frame in unasked]
        frame = frames[chance.randrange(2)]
        for _ in range(chance.randint(1, 4)):
            frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            del frame[chance.randrange(len(frame)) :]
        mutated = [bytes(frame) for frame in frames]
        yield mutated


def lies(port: Port, shown: bytes) -> Iterator[bytes]:
    """What the recorder is told that is not for a client to say."""
    finished = '{"digest": "0", "trace_digest": "0", "rounds": 99, "stopped": "", "simulated_s": 0, "wall_s": 0}'
    for fact in (
        ("events", "server", "finished", finished, 0, 0.0),
        ("events", port.name, "finished", finished, 0, 0.0),
        ("events", "c000", "lost", "so I say", 0, 0.0),
        ("events", port.name, "lost", "so I say", 0, 0.0),
        ("events", "c001", "died", "so I say", 0, 0.0),
        ("evaluations", 10**9, 0, 3, "mine", "test", 1, 1, 0.0),
        ("rounds", 99, 0, 1, 0.0, "[]", 1, 0, 0),
        ("clients", 9, "c009", 1, 1, 1, "[]", "fast", 1.0, "[]"),
        ("sent", "server", "c000", "WORK", "data", 10**6, 1, 1, 1, 1, 1),
        ("received", "c003", "server", "RESULT", "data", 10**6, 1, 1, 1, 1),
        ("measures", 1, "server", "visits", 7),
        ("bound", "server", "tcp://127.0.0.1:1"),
        ("model", "server", b"x"),
        ("model", "../../x", b"x"),
        ("nonsense", 1),
        ("spans", ["server"], "compute", 0, 1, 1),
        ("energy", port.name, 1.0, 1.0, 1.0),
    ):
        yield msgpack.packb([shown, [fact]])
    yield msgpack.packb(["server", [("events", "server", "finished", finished, 0, 0.0)]])
    yield from (b"", b"\xc1", msgpack.packb([1, 2, 3]), msgpack.packb([shown, {"a": 1}]), msgpack.packb([shown, [7]]))
    yield from (msgpack.packb([port.name, None]), msgpack.packb([b"p" + bytes(16), None]), msgpack.packb([[], []]))
    yield pickle.dumps(Pickled())


def false_states(round: int) -> Iterator[tuple[Any, ...]]:
    """What is handed in as a checkpoint after a round by one who may only hand in its own state, before it does so."""
    yield PIECE, round, "c001.state", b"another's state"
    yield CHECKPOINT, round, {"c001.state": "0" * 64}
    yield UNDER_WAY, round, {"c003.crossed": "0" * 64}
    yield PIECE, round, "../../run.toml", b"x"
    if round == WRONG_ROUND:
        yield PIECE, round, "c003.state", b"what makes its own state wrong"


def _deep(levels: int) -> Any:
    return [] if levels == 0 else [_deep(levels - 1)]
