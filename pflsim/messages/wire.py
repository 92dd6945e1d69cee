"""The wire: a message is a header frame, a stamp frame, and one raw frame per tensor.

    header   msgpack array: protocol version, run id, kind, sender, receiver, sequence, round, model version, work id,
             sample count, tensors [[name, dtype, shape, codec], ...], facts {name: number, text or bytes}
    stamp    msgpack array: the simulated departure, the nanoseconds for which the clock had stopped, the flight
             (`pflsim.timing.links`), and until when the sender will be quiet. A real system would not send it, so its
             bytes are control bytes and never charged
    tensors  little-endian, contiguous, exactly shape x item size bytes; never copied, never pickled. The codec of such
             a tensor is "raw"; else it is [name, number of its base], and its frame, which one of `pflsim.codecs` has
             made, is kept as it came for its port to unpack, which knows the codecs of the run

What arrives is checked before anybody uses it: `decode` raises `BadMessage` with the reason, and nothing else.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
import torch
from torch import Tensor

from pflsim.coding.direction import Coded
from pflsim.errors import BadMessage

PROTOCOL = 2

WORK, RESULT, GONE, CANCEL = "WORK", "RESULT", "GONE", "CANCEL"
PROBE, LOSS = "PROBE", "LOSS"
EVAL, EVAL_RESULT = "EVAL", "EVAL_RESULT"
PUSH, PAIR, PAIRED, BYE = "PUSH", "PAIR", "PAIRED", "BYE"
JOIN, STOP, STATE, PROMISE = "JOIN", "STOP", "STATE", "PROMISE"
CHECKPOINT, STANDS, GO_ON = "CHECKPOINT", "STANDS", "GO_ON"
PLACES, HELLO, WELCOME, READY, BEGIN, FINISHED = "PLACES", "HELLO", "WELCOME", "READY", "BEGIN", "FINISHED"
WAITING, TELL, LICENCE, MARK = "WAITING", "TELL", "LICENCE", "MARK"
DUE, WHERE, HERE, CUT = "DUE", "WHERE", "HERE", "CUT"
LEFT, HEARD = "LEFT", "HEARD"
ALIVE = "ALIVE"
"""Says nothing else: a coordinator hears nothing of many peers until they have finished."""
LOST = "LOST"
"""Never travels: what a port hands out in the place of an answer of an actor that has left the run."""

CHANNEL = {
    WORK: "data",
    RESULT: "data",
    GONE: "data",
    PUSH: "data",
    PAIR: "data",
    PAIRED: "data",
    BYE: "data",
    PROBE: "data",
    LOSS: "data",
    CANCEL: "control",
    EVAL: "evaluation",
    EVAL_RESULT: "evaluation",
    JOIN: "control",
    STOP: "control",
    STATE: "control",
    PROMISE: "control",
    CHECKPOINT: "control",
    STANDS: "control",
    GO_ON: "control",
    PLACES: "control",
    HELLO: "control",
    WELCOME: "control",
    READY: "control",
    BEGIN: "control",
    FINISHED: "control",
    WAITING: "control",
    TELL: "control",
    LICENCE: "control",
    MARK: "control",
    DUE: "control",
    WHERE: "control",
    HERE: "control",
    CUT: "control",
    LEFT: "control",
    HEARD: "control",
    ALIVE: "control",
}
"""Only what travels on the channel "data" takes simulated time and is charged to the method."""

ANSWER = {
    WORK: RESULT,
    PROBE: LOSS,
    EVAL: EVAL_RESULT,
    STOP: STATE,
    PAIR: PAIRED,
    CHECKPOINT: STANDS,
    STANDS: GO_ON,
}
"""What is answered to what is asked; each question is answered exactly once."""

INSTEAD = {GONE: RESULT}
"""What may come in the place of an answer: the client was away while it should have worked, and is back."""

ANSWERS = frozenset({JOIN, PLACES, READY, BEGIN, FINISHED, *ANSWER.values(), *INSTEAD})
"""What is refused unless somebody waits for it."""

QUESTIONS = frozenset(ANSWER)


SERVER, COORDINATOR = "server", "coordinator"

TAKEN_BY = {
    SERVER: frozenset({JOIN, RESULT, LOSS, GONE, EVAL_RESULT, STATE, PROMISE, STANDS}),
    COORDINATOR: frozenset({JOIN, READY, FINISHED, STATE, WAITING, DUE, HERE, HEARD, ALIVE}),
}
"""The kinds that an actor takes; of all others there are many."""
TAKEN_BY_CLIENT = frozenset({WORK, PROBE, EVAL, STOP, CANCEL, CHECKPOINT, GO_ON})
TAKEN_BY_PEER = frozenset(
    {PUSH, PAIR, PAIRED, BYE, PLACES, HELLO, WELCOME, BEGIN, STOP, TELL, LICENCE, MARK, WHERE, CUT, LEFT}
)

ONLY_OF_THE_HUB = frozenset(
    {WORK, PROBE, EVAL, STOP, CANCEL, CHECKPOINT, GO_ON, PLACES, BEGIN, TELL, LICENCE, WHERE, CUT, LEFT}
)
"""The kinds that only a server or a coordinator sends."""

DTYPES: dict[str, tuple[torch.dtype, np.dtype[Any]]] = {
    "f4": (torch.float32, np.dtype("<f4")),
    "f8": (torch.float64, np.dtype("<f8")),
    "f2": (torch.float16, np.dtype("<f2")),
    "i8": (torch.int64, np.dtype("<i8")),
    "i4": (torch.int32, np.dtype("<i4")),
    "i1": (torch.int8, np.dtype("i1")),
    "u1": (torch.uint8, np.dtype("u1")),
    "b1": (torch.bool, np.dtype("?")),
}
DTYPE_NAMES = {torch_type: name for name, (torch_type, _) in DTYPES.items()}
ITEM_BYTES = {name: numpy_type.itemsize for name, (_, numpy_type) in DTYPES.items()}

with warnings.catch_warnings():
    # torch says once per process that a tensor over a received frame could be written to. Methods never write to
    # what they are given (the conformance suite checks it), so it is said here, where nobody has to read it.
    warnings.simplefilter("ignore")
    torch.frombuffer(bytes(4), dtype=torch.float32)

MAX_HEADER_BYTES = 1 << 20
MAX_TENSORS = 1024
MAX_DIMENSIONS = 8
MAX_TENSOR_BYTES = 1 << 34

Frame = bytes | memoryview


@dataclass(slots=True)
class Message:
    """One message between two actors; `facts` are the few small values that are not tensors."""

    kind: str
    sender: str
    to: str
    sequence: int = 0
    round: int = 0
    version: int = 0
    work_id: int = 0
    samples: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    coded: dict[str, Coded] = field(default_factory=dict)
    """Which of the tensors are frames, as bytes; and when they are unpacked, which of them are differences to what."""
    quiet_ns: int = 0
    """Nothing more from its sender leaves before that simulated time; like the next one, only its stamp says so."""
    left_ns: int = 0
    """When it left its sender."""

    @property
    def channel(self) -> str:
        return CHANNEL[self.kind]


def tensor_frames(
    tensors: Mapping[str, Tensor], coded: Mapping[str, Coded] | None = None
) -> tuple[list[list[object]], list[Frame]]:
    """The descriptions and the raw frames of `tensors`; the frames are views, so the tensors must not change.

    Those in `coded` are frames already.
    Raises TypeError or ValueError for what no receiver would take.
    """
    descriptions: list[list[object]] = []
    frames: list[Frame] = []
    if len(tensors) > MAX_TENSORS:
        raise ValueError(f"a message of {len(tensors)} tensors, at most {MAX_TENSORS} travel together")
    for name, tensor in tensors.items():
        dtype = _sendable(name, tensor)
        if coded and name in coded:
            codec, base, shape = coded[name]
            descriptions.append([name, "f4", list(shape), [codec, base]])
        else:
            descriptions.append([name, dtype, list(tensor.shape), "raw"])
        frames.append(tensor.detach().contiguous().numpy().reshape(-1).view(np.uint8).data)
    return descriptions, frames


def _sendable(name: object, tensor: object) -> str:
    """The wire's name for the type of a tensor that can travel."""
    if not isinstance(name, str):
        raise TypeError(f"tensor {name!r} has a {type(name).__name__} for a name; it must be text")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name!r} is a {type(tensor).__name__}; only tensors travel")
    if tensor.dtype not in DTYPE_NAMES:
        raise TypeError(f"tensor {name!r} has dtype {tensor.dtype}; the wire carries {', '.join(DTYPES)}")
    if tensor.dim() > MAX_DIMENSIONS:
        raise ValueError(f"tensor {name!r} has {tensor.dim()} dimensions, at most {MAX_DIMENSIONS} travel")
    if math.prod(max(size, 1) for size in tensor.shape) > MAX_TENSOR_BYTES:
        raise ValueError(f"tensor {name!r} has the shape {list(tensor.shape)}, which is too large to travel")
    return DTYPE_NAMES[tensor.dtype]


def encode_header(message: Message, run_id: bytes, descriptions: list[list[object]]) -> bytes:
    """The header frame of `message`, whose tensors are described by `descriptions`; ValueError if it is too long."""
    packed: bytes = msgpack.packb(
        (
            PROTOCOL,
            run_id,
            message.kind,
            message.sender,
            message.to,
            message.sequence,
            message.round,
            message.version,
            message.work_id,
            message.samples,
            descriptions,
            message.facts,
        )
    )
    if len(packed) > MAX_HEADER_BYTES:
        raise ValueError(f"a {message.kind} whose header has {len(packed)} bytes, at most {MAX_HEADER_BYTES} travel")
    return packed


def decode(frames: Sequence[Frame], run_id: bytes) -> tuple[Message, list[Any]]:
    """The message and its stamp; the tensors are views into the frames. Raises BadMessage, and nothing else."""
    if len(frames) < 2:
        raise BadMessage(f"{len(frames)} frames, at least a header and a stamp belong to a message")
    fields = _unpack(frames[0], "header")
    if len(fields) != 12:
        raise BadMessage(f"a header has 12 fields, not {len(fields)}")
    if fields[0] != PROTOCOL:
        raise BadMessage(f"protocol {fields[0]!r}, this is {PROTOCOL}")
    if fields[1] != run_id:
        raise BadMessage("it belongs to another run")
    kind, sender, to = _names(fields[2:5])
    sequence, round_, version, work_id, samples = _counters(fields[5:10])
    facts = _facts(fields[11])
    message = Message(kind, sender, to, sequence, round_, version, work_id, samples, facts=facts)
    try:
        message.tensors, message.coded = _tensors(fields[10], frames[2:])
        return message, _stamp(frames[1])
    except BadMessage as problem:
        problem.message = message
        raise


def _stamp(frame: Frame) -> list[Any]:
    stamp = _unpack(frame, "stamp")
    if len(stamp) != 4 or any(type(stamp[at]) is not int or not 0 <= stamp[at] < 1 << 63 for at in (0, 1, 3)):
        raise BadMessage("a stamp is two times, a flight, and until when its sender is quiet")
    return stamp


def _unpack(frame: Frame, what: str) -> list[Any]:
    view = memoryview(frame)
    if view.nbytes > MAX_HEADER_BYTES:
        raise BadMessage(f"a {what} of {view.nbytes} bytes, at most {MAX_HEADER_BYTES} are read")
    try:
        unpacked = msgpack.unpackb(view, strict_map_key=False)
    except Exception as problem:  # msgpack raises some ten unrelated classes on hostile bytes
        raise BadMessage(f"the {what} is not msgpack ({type(problem).__name__})") from problem
    if not isinstance(unpacked, list):
        raise BadMessage(f"the {what} is not an array")
    return unpacked


def _names(fields: list[Any]) -> tuple[str, str, str]:
    kind, sender, to = fields
    if not isinstance(kind, str) or kind not in CHANNEL:
        raise BadMessage(f"unknown kind {kind!r:.40}")
    if not isinstance(sender, str) or not isinstance(to, str):
        raise BadMessage("sender and receiver must be names")
    return kind, sender, to


def _counters(fields: list[Any]) -> list[int]:
    for value in fields:
        if type(value) is not int or not 0 <= value < 1 << 63:
            raise BadMessage(f"a counter of the header is {value!r:.40}")
    return fields


def _facts(facts: Any) -> dict[str, Any]:
    if not isinstance(facts, dict) or not all(isinstance(name, str) for name in facts):
        raise BadMessage("facts must be named values")
    return facts


def _tensors(descriptions: Any, frames: Sequence[Frame]) -> tuple[dict[str, Tensor], dict[str, Coded]]:
    if not isinstance(descriptions, list) or len(descriptions) > MAX_TENSORS:
        raise BadMessage("the tensor descriptions are not a short array")
    if len(descriptions) != len(frames):
        raise BadMessage(f"{len(descriptions)} tensors are described, {len(frames)} came")
    tensors: dict[str, Tensor] = {}
    coded: dict[str, Coded] = {}
    for description, frame in zip(descriptions, frames, strict=True):
        name, dtype, shape, codec = _described(description)
        if name in tensors:
            raise BadMessage(f"tensor {name!r:.40} comes twice")
        if codec == "raw":
            tensors[name] = _tensor(name, dtype, shape, memoryview(frame))
        else:
            coded[name] = _coded(name, dtype, shape, codec)
            view = memoryview(frame)
            tensors[name] = _tensor(name, "u1", [view.nbytes], view)
    return tensors, coded


def _coded(name: str, dtype: str, shape: list[int], codec: Any) -> Coded:
    """What is said of a tensor that is not raw; whether there is such a codec is for others to know."""
    is_pair = isinstance(codec, list) and len(codec) == 2
    if not is_pair or not isinstance(codec[0], str) or type(codec[1]) is not int or not 0 <= codec[1] < 1 << 63:
        raise BadMessage(f"tensor {name!r:.40} has unknown codec {codec!r:.40}")
    if dtype != "f4":
        raise BadMessage(f"tensor {name!r:.40} is encoded, and of type {dtype}")
    return Coded(codec[0], codec[1], tuple(shape))


def _described(description: Any) -> tuple[str, str, list[int], Any]:
    if not isinstance(description, list) or len(description) != 4:
        raise BadMessage("a tensor description is [name, dtype, shape, codec]")
    name, dtype, shape, codec = description
    if not isinstance(name, str):
        raise BadMessage("a tensor's name must be text")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise BadMessage(f"tensor {name!r:.40} has unknown dtype {dtype!r:.40}")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise BadMessage(f"tensor {name!r:.40} has no proper shape")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise BadMessage(f"tensor {name!r:.40} has no proper shape")
    if math.prod(max(size, 1) for size in shape) > MAX_TENSOR_BYTES:  # torch cannot even be empty in such a shape
        raise BadMessage(f"tensor {name!r:.40} has no proper shape")
    return name, dtype, shape, codec


def _tensor(name: str, dtype: str, shape: list[int], frame: memoryview) -> Tensor:
    count = 1
    for size in shape:
        count *= size
    expected = count * ITEM_BYTES[dtype]
    if frame.nbytes != expected:
        raise BadMessage(f"tensor {name!r:.40} has {frame.nbytes} bytes, its shape says {expected}")
    torch_type, _ = DTYPES[dtype]
    if dtype == "b1" and frame.nbytes and np.frombuffer(frame, np.uint8).max() > 1:
        raise BadMessage(f"tensor {name!r:.40} is not made of truth values")
    if not count:
        return torch.empty(shape, dtype=torch_type)
    flat = torch.frombuffer(frame, dtype=torch_type)
    return flat if len(shape) == 1 else flat.view(shape)
