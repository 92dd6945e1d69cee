"""The wire: what is sent comes back bit for bit without a copy, and whatever else arrives is refused with a reason."""

import math
import random

import msgpack
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pflsim.errors import BadMessage
from pflsim.messages import wire
from pflsim.messages.wire import CHANNEL, DTYPES, Message, decode, encode_header, tensor_frames

RUN = b"this run"
STAMP = msgpack.packb((17, 0, None, 0))
NO_STAMP = "a stamp is two times, a flight, and until when its sender is quiet"
SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4, 5)]
NAMES = ("protocol", "run", "kind", "sender", "to", "sequence", "round", "version", "work_id", "samples", "tensors")


def filled(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Every bit pattern that the type has room for, also those of nan and of minus zero."""
    torch_type, numpy_type = DTYPES[dtype]
    count = math.prod(shape)
    if dtype == "b1":
        return torch.tensor([position % 3 == 0 for position in range(count)], dtype=torch.bool).reshape(shape)
    raw = random.Random(7).randbytes(count * numpy_type.itemsize)
    return (
        torch.frombuffer(bytearray(raw), dtype=torch_type).reshape(shape)
        if count
        else torch.empty(shape, dtype=torch_type)
    )


def frames_of(
    tensors: dict[str, torch.Tensor], facts: dict[str, object] | None = None, kind: str = "RESULT"
) -> list[bytes]:
    """What a client would put on the wire, as bytes of their own."""
    descriptions, frames = tensor_frames(tensors)
    message = Message(kind, "c003", "server", 5, 2, 1, 9, 40, facts=facts or {})
    return [encode_header(message, RUN, descriptions), STAMP, *map(bytes, frames)]


def header(**changed: object) -> bytes:
    """The header of a message with one tensor w [2, 3] in float32, some of its fields changed."""
    fields = [2, RUN, "RESULT", "c003", "server", 5, 2, 1, 9, 40, [["w", "f4", [2, 3], "raw"]], {}]
    for name, value in changed.items():
        fields[(*NAMES, "facts").index(name)] = value
    return msgpack.packb(fields)


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor_frames({"": tensor})[1][0])


def refused(frames: list[bytes]) -> str:
    with pytest.raises(BadMessage) as problem:
        decode(frames, RUN)
    return str(problem.value)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_and_shape_comes_back_bit_for_bit(dtype: str, shape: tuple[int, ...]) -> None:
    sent = filled(dtype, shape)
    message, stamp = decode(frames_of({"w": sent}), RUN)
    got = message.tensors["w"]
    assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
    assert bits(got) == bits(sent)
    assert stamp == [17, 0, None, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_with_gaps_or_in_another_order_come_back_as_they_look(dtype: str) -> None:
    square = filled(dtype, (4, 6))
    views = {"transposed": square.T, "columns": square[:, ::2], "row": square[2], "repeated": square[:1].expand(3, 6)}
    message, _ = decode(frames_of(views), RUN)
    assert list(message.tensors) == list(views)
    for name, view in views.items():
        assert message.tensors[name].shape == view.shape
        assert bits(message.tensors[name]) == bits(view)


def test_all_fields_of_the_header_come_back() -> None:
    facts = {
        "digest": b"\x00\xff",
        "restart": True,
        "share": 0.25,
        "text": "gut — 好",
        "scores": {"global": {"test": [1, 2, 0.5]}},
    }
    message, _ = decode(frames_of({}, facts), RUN)
    assert message == Message("RESULT", "c003", "server", 5, 2, 1, 9, 40, {}, facts)


@pytest.mark.parametrize("kind", CHANNEL)
def test_every_kind_of_message_travels_on_its_channel(kind: str) -> None:
    assert decode(frames_of({}, kind=kind), RUN)[0].channel == CHANNEL[kind]


def test_a_decoded_tensor_is_the_memory_of_its_frame() -> None:
    frame = bytearray(24)
    message, _ = decode([header(), STAMP, memoryview(frame)], RUN)
    frame[4:8] = b"\x00\x00\x80\x3f"
    assert message.tensors["w"].tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_contiguous_tensor_is_not_copied_when_it_is_sent(dtype: str) -> None:
    tensor = filled(dtype, (3, 4))
    _, (frame,) = tensor_frames({"w": tensor})
    over_the_frame = torch.frombuffer(frame, dtype=torch.uint8)
    assert over_the_frame.data_ptr() == tensor.data_ptr()
    assert frame.nbytes == tensor.numel() * tensor.element_size()


def test_what_needs_a_gradient_can_be_sent() -> None:
    message, _ = decode(frames_of({"w": torch.ones(3, requires_grad=True)}), RUN)
    assert message.tensors["w"].tolist() == [1.0, 1.0, 1.0]
    assert not message.tensors["w"].requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.int16])
def test_a_type_that_the_wire_does_not_carry_is_refused_by_the_sender(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"tensor 'w' has dtype torch\.\w+; the wire carries f4, f8"):
        tensor_frames({"w": torch.zeros(2, dtype=dtype)})


FLOATS = bytes(24)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"protocol": 1}, "protocol 1, this is 2"),
        ({"run": b"that run"}, "it belongs to another run"),
        ({"run": "this run"}, "it belongs to another run"),
        ({"kind": "GREETING"}, "unknown kind 'GREETING'"),
        ({"kind": ["RESULT"]}, "unknown kind ['RESULT']"),
        ({"sender": 3}, "sender and receiver must be names"),
        ({"to": None}, "sender and receiver must be names"),
        ({"sequence": -1}, "a counter of the header is -1"),
        ({"round": 1.0}, "a counter of the header is 1.0"),
        ({"samples": True}, "a counter of the header is True"),
        ({"work_id": 1 << 63}, "a counter of the header is 9223372036854775808"),
        ({"facts": []}, "facts must be named values"),
        ({"facts": {1: 2}}, "facts must be named values"),
        ({"tensors": {}}, "the tensor descriptions are not a short array"),
        ({"tensors": []}, "0 tensors are described, 1 came"),
        ({"tensors": [["w", "f4", [6], "raw"]] * 2}, "2 tensors are described, 1 came"),
        ({"tensors": [["w", "f4", [6]]]}, "a tensor description is [name, dtype, shape, codec]"),
        ({"tensors": [[0, "f4", [6], "raw"]]}, "a tensor's name must be text"),
        ({"tensors": [["w", "O", [6], "raw"]]}, "tensor 'w' has unknown dtype 'O'"),
        ({"tensors": [["w", ["f4"], [6], "raw"]]}, "tensor 'w' has unknown dtype ['f4']"),
        ({"tensors": [["w", "f4", [6], "pickle"]]}, "tensor 'w' has unknown codec 'pickle'"),
        ({"tensors": [["w", "f4", 6, "raw"]]}, "tensor 'w' has no proper shape"),
        ({"tensors": [["w", "f4", [-6], "raw"]]}, "tensor 'w' has no proper shape"),
        ({"tensors": [["w", "f4", [6.0], "raw"]]}, "tensor 'w' has no proper shape"),
        ({"tensors": [["w", "f4", [1] * 9, "raw"]]}, "tensor 'w' has no proper shape"),
        ({"tensors": [["w", "f4", [1 << 40], "raw"]]}, "tensor 'w' has no proper shape"),
        ({"tensors": [["w", "f4", [7], "raw"]]}, "tensor 'w' has 24 bytes, its shape says 28"),
        ({"tensors": [["w", "f4", [], "raw"]]}, "tensor 'w' has 24 bytes, its shape says 4"),
    ],
    ids=str,
)
def test_a_header_that_is_not_sound_is_refused_with_the_reason(changed: dict[str, object], reason: str) -> None:
    assert refused([header(**changed), STAMP, FLOATS]) == reason


@pytest.mark.parametrize("shape", [[0, 1 << 34, 1 << 34], [1 << 34] * 7 + [0]], ids=str)
def test_an_empty_tensor_of_a_monstrous_shape_is_refused(shape: list[int]) -> None:
    assert refused([header(tensors=[["w", "f4", shape, "raw"]]), STAMP, b""]) == "tensor 'w' has no proper shape"


def test_a_tensor_that_comes_twice_is_refused() -> None:
    twice = header(tensors=[["w", "f4", [6], "raw"]] * 2)
    assert refused([twice, STAMP, FLOATS, FLOATS]) == "tensor 'w' comes twice"


def test_a_truth_value_is_zero_or_one() -> None:
    described = header(tensors=[["w", "b1", [3], "raw"]])
    assert decode([described, STAMP, b"\x00\x01\x00"], RUN)[0].tensors["w"].tolist() == [False, True, False]
    assert refused([described, STAMP, b"\x00\x02\x00"]) == "tensor 'w' is not made of truth values"


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "0 frames, at least a header and a stamp belong to a message"),
        ([header()], "1 frames, at least a header and a stamp belong to a message"),
        ([b"", STAMP], "the header is not msgpack (ValueError)"),
        ([b"\xc1" * 9, STAMP], "the header is not msgpack (FormatError)"),
        ([msgpack.packb({}), STAMP], "the header is not an array"),
        ([msgpack.packb([1, RUN]), STAMP], "a header has 12 fields, not 2"),
        ([bytes((1 << 20) + 1), STAMP], "a header of 1048577 bytes, at most 1048576 are read"),
        ([header(), b"", FLOATS], "the stamp is not msgpack (ValueError)"),
        (
            [header(), msgpack.packb([1, 2]), FLOATS],
            NO_STAMP,
        ),
        (
            [header(), msgpack.packb([1, -2, None, 0]), FLOATS],
            NO_STAMP,
        ),
        (
            [header(), msgpack.packb([1, 2, None, True]), FLOATS],
            NO_STAMP,
        ),
        ([header(), STAMP], "1 tensors are described, 0 came"),
        ([header(), STAMP, FLOATS[:-1]], "tensor 'w' has 23 bytes, its shape says 24"),
        ([header(), STAMP, FLOATS, FLOATS], "1 tensors are described, 2 came"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_frames_that_are_no_message_are_refused_with_the_reason(frames: list[bytes], reason: str) -> None:
    assert refused(frames) == reason


def test_a_message_with_a_sound_header_is_named_when_its_tensors_are_not() -> None:
    with pytest.raises(BadMessage) as problem:
        decode([header(), STAMP, FLOATS[:-1]], RUN)
    claimed = problem.value.message
    assert (claimed.sender, claimed.channel, claimed.sequence) == ("c003", "data", 5)


def test_a_message_is_not_named_when_its_header_is_not_sound() -> None:
    with pytest.raises(BadMessage) as problem:
        decode([header(run=b"that run"), STAMP, FLOATS], RUN)
    assert problem.value.message is None


# whatever arrives

ANYTHING = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
VALID = frames_of(
    {"w": filled("f4", (3, 4)), "mask": filled("b1", (5,)), "none": filled("f8", (0, 2)), "one": filled("i8", ())},
    {"restart": True},
)


def decoded_or_refused(frames: list[bytes]) -> None:
    """Nothing but BadMessage is raised; what is decoded has exactly the bytes that arrived, each in its place."""
    try:
        message, stamp = decode(frames, RUN)
    except BadMessage:
        return
    assert len(message.tensors) == len(frames) - 2
    for tensor, frame in zip(message.tensors.values(), frames[2:], strict=True):
        assert bits(tensor) == frame
    assert message.kind in CHANNEL and type(message.sequence) is int and len(stamp) == 4


@ANYTHING
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_random_frames_are_refused_and_never_crash(frames: list[bytes]) -> None:
    refused(frames)


nested = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@ANYTHING
@given(st.sampled_from((*NAMES, "facts")), nested, st.binary(max_size=30))
def test_any_value_in_any_field_of_the_header_is_refused_or_harmless(field: str, value: object, frame: bytes) -> None:
    decoded_or_refused([header(**{field: value}), STAMP, frame])


sizes = st.integers(0, 3) | st.sampled_from([1 << 20, 1 << 31, 1 << 34, 1 << 40])


@ANYTHING
@given(st.sampled_from(list(DTYPES)), st.lists(sizes, max_size=9), st.binary(max_size=30))
def test_any_shape_is_refused_or_fits_its_frame(dtype: str, shape: list[int], frame: bytes) -> None:
    decoded_or_refused([header(tensors=[["w", dtype, shape, "raw"]]), STAMP, frame])


@ANYTHING
@given(st.data())
def test_mutated_frames_are_refused_or_decoded_as_they_arrived(data: st.DataObject) -> None:
    frames = list(VALID)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(frames) - 1))
        frame = bytearray(frames[position])
        what = data.draw(st.sampled_from(["flip", "cut", "grow", "drop", "double", "swap"]))
        if what == "flip" and frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        elif what == "cut":
            del frame[data.draw(st.integers(0, len(frame))) :]
        elif what == "grow":
            frame += data.draw(st.binary(min_size=1, max_size=9))
        elif what == "double":
            frames.insert(position, bytes(frame))
        elif what == "swap":
            other = data.draw(st.integers(0, len(frames) - 1))
            frames[position], frames[other] = frames[other], frames[position]
            continue
        frames[position] = bytes(frame)
        if what == "drop" and len(frames) > 1:
            del frames[position]
    decoded_or_refused(frames)


@ANYTHING
@given(st.data())
def test_a_truncated_tensor_is_always_refused(data: st.DataObject) -> None:
    position = data.draw(st.sampled_from([place for place, frame in enumerate(VALID) if place > 1 and frame]))
    frames = list(VALID)
    frames[position] = frames[position][: data.draw(st.integers(0, len(frames[position]) - 1))]
    assert "bytes, its shape says" in refused(frames)


def test_the_limits_are_those_that_the_tests_assume() -> None:
    assert (wire.PROTOCOL, wire.MAX_HEADER_BYTES, wire.MAX_TENSOR_BYTES) == (2, 1 << 20, 1 << 34)
