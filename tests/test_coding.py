"""A message through a codec: what travels as it is, differences, what is carried over, what is refused on arrival."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pflsim import catalogue
from pflsim.coding.direction import LARGEST, LEAST, Coded, Direction, candidates, restored
from pflsim.coding.settings import Codecs, load
from pflsim.errors import BadMessage, DescriptionError
from pflsim.messages import wire
from pflsim.messages.port import Port, frame_sizes
from pflsim.messages.wire import Message, decode, encode_header, tensor_frames
from pflsim.rng import stream
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from pflsim.timing.links import Links
from tests.launching import description

RUN = b"8 bytes."
CARRIED_OVER: dict[str, dict[str, Any]] = {
    "fp16": {},
    "bf16": {},
    "int8": {},
    "int4": {},
    "qsgd": {"chunk": 32},
    "sign": {},
    "top-k": {"share": 0.1},
    "random-k": {"scaled": False},
    "low-rank": {},
}
"""Every codec with the settings by which what it leaves out may be carried over."""
KEEPS_NUMBERS = ("top-k", "random-k")


def direction(name: str, settings: Mapping[str, Any] | None = None, **common: Any) -> Direction:
    codec = catalogue.find("codecs", name, "codec.up")(**(settings or {}))
    return Direction("codec.up", name, codec, layouts=(((20, 30), (30,)),), **common)


def vector(n: int = 630, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(stream(seed, "vector").normal(size=n).astype(np.float32))


def draws(number: int = 0) -> Any:
    return lambda name: stream(3, "codec", number, name)


def arrived(one: Direction, sent: Any) -> dict[str, torch.Tensor]:
    """What its receiver unpacks of a message that has crossed the wire."""
    descriptions, frames = tensor_frames(sent.tensors, sent.coded)
    header = encode_header(Message("RESULT", "c000", "server"), RUN, descriptions)
    stamp = wire.msgpack.packb((0, 0, None, 0))
    message, _ = decode([header, stamp, *map(bytes, frames)], RUN)
    assert message.coded == sent.coded
    for name, coded in message.coded.items():
        message.tensors[name] = one.unpacked(coded, message.tensors[name])
    return message.tensors


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("name", ["none", *CARRIED_OVER])
def test_what_comes_out_of_the_wire_is_what_the_sender_says_that_is_seen(name: str, zstd: bool) -> None:
    one, w = direction(name, CARRIED_OVER.get(name), zstd=zstd), vector()
    sent = one.sent({"w": w, "k": torch.tensor([3])}, draws())
    got = arrived(one, sent)
    assert list(got) == ["w", "k"] and torch.equal(got["k"], torch.tensor([3]))
    assert torch.equal(got["w"], sent.seen["w"]) and got["w"].shape == w.shape
    if not zstd:
        assert [len(frame) for frame in sent.tensors.values()] == [one.frame_bytes({"w": w})[0], 1]
    assert one.label == (f"{name}+zstd" if zstd else name) == sent.coded["w"].codec


@pytest.mark.parametrize(
    "tensor",
    [
        vector().double(),
        torch.arange(100),
        vector(LEAST - 1),
        torch.empty(0),
        vector() * float("nan"),
        torch.full((100,), float("inf")),
        torch.full((100,), 10 * LARGEST),
        vector().bfloat16().to(torch.float16),
    ],
    ids=["float64", "labels", "small", "empty", "nan", "infinite", "huge", "float16"],
)
@pytest.mark.parametrize("name", ["int8", "top-k"])
def test_what_cannot_be_encoded_travels_as_it_is(name: str, tensor: torch.Tensor) -> None:
    sent = direction(name, error_feedback=True, delta=True).sent(
        {"w": tensor}, draws(), lambda _, x: [(0, x), (1, torch.zeros_like(x))]
    )
    assert sent.coded == {} and sent.tensors["w"] is tensor and sent.seen["w"] is tensor and sent.residuals == {}


def test_only_the_tensors_that_are_named_are_encoded() -> None:
    sent = direction("int8", tensors=("b",)).sent({"a": vector(), "b": vector()}, draws())
    assert list(sent.coded) == ["b"] and list(sent.tensors) == ["a", "b"]


@pytest.mark.parametrize("name", CARRIED_OVER)
def test_what_is_seen_and_what_is_left_out_are_what_was_to_be_sent(name: str) -> None:
    """Exactly for what keeps numbers as they are; else to float32's rounding of the two, each of which is rounded."""
    one, x, left = direction(name, CARRIED_OVER[name], error_feedback=True), vector(), vector(seed=2)
    sent = one.sent({"w": x}, draws(), residuals={"w": left})
    v, whole = x + left, sent.seen["w"] + sent.residuals["w"]
    if name in KEEPS_NUMBERS:
        assert torch.equal(whole, v)
    else:
        size = torch.maximum(sent.seen["w"].abs(), sent.residuals["w"].abs())
        assert bool(((whole - v).abs() <= 2.0**-23 * size).all())


@pytest.mark.parametrize("name", CARRIED_OVER)
def test_with_error_feedback_all_that_was_seen_is_all_that_was_sent_but_for_the_last_residual(name: str) -> None:
    one, total, seen = direction(name, CARRIED_OVER[name], error_feedback=True), torch.zeros(630).double(), 0.0
    residuals: dict[str, torch.Tensor] = {}
    sizes = []
    for number in range(80):
        x = vector(seed=number)
        sent = one.sent({"w": x}, draws(number), residuals=residuals)
        total, seen, residuals = total + x.double(), seen + sent.seen["w"].double(), sent.residuals
        sizes.append(float(residuals["w"].norm()))
    assert float((seen + residuals["w"].double() - total).abs().max()) < 1e-4
    assert max(sizes[40:]) < 2 * max(sizes[20:40]), "what is carried over does not grow"


@pytest.mark.parametrize("name", CARRIED_OVER)
def test_differences_to_the_last_message_come_to_rest_at_a_model_that_rests(name: str) -> None:
    one, w, has = direction(name, CARRIED_OVER[name], delta=True), vector(), vector(seed=2)
    ways = [float((w - has).norm())]
    for number in range(60):
        sent = one.sent({"w": w}, draws(number), lambda *_, number=number, has=has: [(number + 1, has)])
        assert sent.coded["w"].base == number + 1
        got = restored(arrived(one, sent), sent.coded, lambda *_, has=has: has)["w"]
        assert torch.equal(got, sent.seen["w"])
        has = got
        ways.append(float((w - has).norm()))
    assert ways[-1] < 0.1 * ways[0]


def test_a_difference_that_has_no_base_travels_as_it_is() -> None:
    sent = direction("top-k", delta=True).sent({"w": vector()}, draws(), lambda *_: [])
    assert sent.coded == {} and torch.equal(sent.seen["w"], vector())


def test_an_answer_is_a_difference_to_the_nearest_of_what_came_down_and_of_its_rows() -> None:
    models = torch.stack([vector(seed=seed) for seed in (1, 2, 3)])
    down = {"c": vector(seed=4), "k": torch.arange(630), "x": models}
    bases = candidates(down, (630,))
    assert [number for number, _ in bases] == [1, 2, 3, 4]
    one = direction("int8", delta=True)

    def base_of(up: torch.Tensor) -> int:
        return one.sent({"u": up}, draws(), lambda _, x: [(0, x), *bases]).coded["u"].base

    assert base_of(models[1] + 0.01 * vector(seed=5)) == 3
    assert base_of(vector(seed=4) + 0.01) == 1
    assert base_of(0.01 * vector(seed=6)) == 0, "what is a difference already stays one"
    sent = one.sent({"u": models[1] + 0.01}, draws(), lambda _, x: [(0, x), *bases])
    whole = restored(arrived(one, sent), sent.coded, lambda _, coded: dict(bases).get(coded.base))
    assert torch.equal(whole["u"], sent.seen["u"]) and torch.allclose(whole["u"], models[1] + 0.01, atol=1e-3)


def test_a_difference_to_what_is_not_there_is_named() -> None:
    sent = direction("int8", delta=True).sent({"w": vector()}, draws(), lambda *_: [(7, vector(seed=2))])
    with pytest.raises(LookupError, match=r"'w' is a difference to something that is not there \(7\)"):
        restored(sent.seen, sent.coded, lambda *_: None)


# what arrives


def bytes_of(frame: bytes | bytearray) -> torch.Tensor:
    return torch.tensor(list(frame), dtype=torch.uint8)


def refused(one: Direction, coded: Coded, frame: bytes) -> str:
    with pytest.raises(BadMessage) as problem:
        one.unpacked(coded, bytes_of(frame))
    return str(problem.value)


def test_a_frame_of_another_codec_or_length_is_refused() -> None:
    one = direction("int8")
    assert refused(one, Coded("sign", 0, (100,)), bytes(104)) == "it is encoded by 'sign', not by int8"
    assert refused(one, Coded("int8", 3, (100,)), bytes(104)) == "it is a difference to 3, and none travel there"
    assert refused(one, Coded("int8", 0, (100,)), bytes(103)) == "it has 103 bytes, as int8 it has 104"
    assert "it has 63 numbers" in refused(one, Coded("int8", 0, (63,)), bytes(67))
    assert "it has 0 numbers" in refused(one, Coded("int8", 0, (0, 64)), b"\0")
    assert "numbers; from 64" in refused(one, Coded("int8", 0, (1 << 33,)), bytes(10))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "it is no zstd frame"),
        (b"nothing of the kind", "it is no zstd frame"),
        (zstandard.compress(bytes(1 << 24)), "its zstd frame holds 16777216 bytes, 104 are needed"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(104)), "its zstd frame holds"),
        (zstandard.compress(bytes(104)) + zstandard.compress(bytes(1 << 20)), "it is no zstd frame"),
        (zstandard.compress(bytes(104))[:-3], "it is no zstd frame"),
    ],
    ids=["empty", "text", "bomb", "of no size", "two frames", "cut"],
)
def test_what_is_no_zstd_frame_of_the_right_size_is_refused_unopened(frame: bytes, reason: str) -> None:
    assert reason in refused(direction("int8", zstd=True), Coded("int8+zstd", 0, (100,)), frame)


def port(codecs: Codecs) -> Port:
    links = Links("wifi", ["server", "c000"])
    found = Port("server", RUN, VirtualClock(), links, None, None)  # type: ignore[arg-type]
    found.codecs = codecs
    return found


def delivered(to: Port, descriptions: list[object], *frames: bytes) -> Message:
    header = encode_header(Message("RESULT", "c000", "server", 1), RUN, descriptions)  # type: ignore[arg-type]
    stamp = wire.msgpack.packb((0, 0, [0, 0, [[1.0, 1.0]], 1.0, 1.0], 0))
    whole = [header, stamp, *frames]
    message, read = decode(whole, RUN)
    to.deliver(message, read, frame_sizes(whole))
    return message


@pytest.mark.parametrize(
    ("codecs", "codec", "frame", "reason"),
    [
        (Codecs(), ["int8", 0], bytes(104), "tensor 'w': nothing is encoded there, and it is by 'int8'"),
        (Codecs(down=direction("int8")), ["int8", 0], bytes(104), "tensor 'w': nothing is encoded there"),
        (Codecs(up=direction("int8")), ["os:system", 0], bytes(104), "it is encoded by 'os:system', not by int8"),
        (Codecs(up=direction("int8")), ["int8", 0], bytes(105), "it has 105 bytes, as int8 it has 104"),
        (Codecs(up=direction("int8")), ["int8", 0], b"\xff" * 104, "a scale is not a finite number from 0"),
        (Codecs(up=direction("int8")), ["int8", -1], bytes(104), "tensor 'w' has unknown codec"),
        (Codecs(up=direction("int8")), ["int8"], bytes(104), "tensor 'w' has unknown codec"),
        (Codecs(up=direction("int8")), ["int8", 0, 0], bytes(104), "tensor 'w' has unknown codec"),
        (Codecs(up=direction("int8")), [7, 0], bytes(104), "tensor 'w' has unknown codec"),
        (Codecs(up=direction("int8")), ["int8", 0.0], bytes(104), "tensor 'w' has unknown codec"),
    ],
    ids=str,
)
def test_a_message_whose_frames_are_not_sound_is_refused_with_the_reason(
    codecs: Codecs, codec: object, frame: bytes, reason: str
) -> None:
    with pytest.raises(BadMessage) as problem:
        delivered(port(codecs), [["w", "f4", [100], codec]], frame)
    assert reason in str(problem.value)


def test_only_float32_is_encoded() -> None:
    with pytest.raises(BadMessage, match="tensor 'w' is encoded, and of type f8"):
        delivered(port(Codecs(up=direction("int8"))), [["w", "f8", [100], ["int8", 0]]], bytes(104))


ANYTHING = settings(max_examples=150, deadline=None)
sizes = st.integers(0, 130) | st.sampled_from([1 << 16, 1 << 31, 1 << 34, 1 << 40])


@ANYTHING
@given(
    name=st.sampled_from(sorted(CARRIED_OVER)),
    zstd=st.booleans(),
    label=st.text(max_size=4) | st.none(),
    base=st.integers(0, 9),
    shape=st.lists(sizes, max_size=4),
    frame=st.binary(max_size=200),
    pack=st.booleans(),
)
def test_any_encoded_tensor_is_refused_or_has_the_shape_that_it_says(
    name: str, zstd: bool, label: str | None, base: int, shape: list[int], frame: bytes, pack: bool
) -> None:
    one = direction(name, CARRIED_OVER[name], zstd=zstd, most_numbers=1 << 16)
    coded = Coded(one.label if label is None else label, base, tuple(shape))
    raw = zstandard.compress(frame) if zstd and pack else frame
    try:
        got = one.unpacked(coded, bytes_of(raw))
    except BadMessage:
        return
    assert list(got.shape) == shape and got.dtype == torch.float32


@ANYTHING
@given(st.data())
def test_mutated_frames_are_refused_or_decoded_to_the_same_shape(data: st.DataObject) -> None:
    name, zstd = data.draw(st.sampled_from(sorted(CARRIED_OVER))), data.draw(st.booleans())
    one = direction(name, CARRIED_OVER[name], zstd=zstd)
    sent = one.sent({"w": vector(100)}, draws())
    frame = bytearray(sent.tensors["w"].numpy().tobytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(frame) - 1)))
        if frame and data.draw(st.booleans()):
            frame[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            frame[at : data.draw(st.integers(at, len(frame)))] = random.Random(at).randbytes(
                data.draw(st.integers(0, 4))
            )
    try:
        got = one.unpacked(sent.coded["w"], bytes_of(frame))
    except BadMessage:
        return
    assert got.shape == (100,) and got.dtype == torch.float32


# what a description may say


@pytest.mark.parametrize(
    ("codec", "said"),
    [
        ({"sideways": "int8"}, "codec.sideways = 'int8': unknown direction; known are up, down, peer"),
        ({"up": "int7"}, "codec.up.name = 'int7': known are bf16, fp16, int4, int8,"),
        ({"up": {"share": 0.1}}, "codec.up.name is required"),
        ({"up": {"name": 7}}, "codec.up.name = 7: must be the name of a codec"),
        ({"up": {"name": "top-k", "shore": 0.1}}, "did you mean 'share'?"),
        ({"up": {"name": "top-k", "share": 0}}, "codec.up.share = 0.0: must be above 0 and at most 1"),
        ({"up": {"name": "top-k", "share": 1.5}}, "codec.up.share = 1.5: must be above 0"),
        ({"up": {"name": "random-k", "share": -1}}, "codec.up.share = -1.0: must be above 0"),
        ({"down": {"name": "int8", "chunk": 0}}, "codec.down.chunk = 0: must be from 1"),
        ({"up": {"name": "qsgd", "bits": 3}}, "codec.up.bits = 3: input should be 2, 4 or 8"),
        ({"up": {"name": "low-rank", "rank": 0}}, "codec.up.rank = 0: must be from 1 to 64"),
        ({"up": {"name": "int8", "delta": "yes"}}, "codec.up.delta = 'yes': input should be a valid boolean"),
        ({"peer": "int8"}, "codec.peer = 'int8': fedavg has a server, and no peers; use codec.up and codec.down"),
        ({"up": {"name": "int8", "tensors": ["v"]}}, "codec.up.tensors = ['v']: 'v' does not travel; known are"),
        ({"up": "os:getcwd"}, "codec.up.name = 'os:getcwd': has no biased, differences_only, variance"),
        ({"down": {"name": "int8", "error_feedback": True}}, "codec.down.error_feedback = True: is for codec.up"),
        ({"up": {"name": "none", "error_feedback": True}}, "has nothing to carry over"),
        ({"up": {"name": "random-k", "error_feedback": True}}, "the error grows: scaled = false"),
        ({"up": {"name": "qsgd", "error_feedback": True}}, "the error grows: a smaller chunk or more bits"),
        ({"down": {"name": "random-k", "delta": True}}, "codec.down.delta = True: random-k may add more than it"),
        ({"down": {"name": "int4", "chunk": 4096, "delta": True}}, "(omega = 20.9 must be below 1)"),
        *(
            ({"down": name}, f"codec.down.name = '{name}': by {name} a model arrives as something else")
            for name in ("top-k", "random-k", "sign", "low-rank")
        ),
    ],
    ids=str,
)
def test_a_codec_that_cannot_be_or_has_no_meaning_is_refused(codec: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        Study(validate(description(codec=codec)), RUN)
    assert said in str(problem.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"codec": {"down": "int8"}}, "codec.down = 'int8': dfedu has no server that sends anything down"),
        ({"codec": {"up": "int8", "peer": "int8"}}, "are the same among peers: give one of the two"),
        ({"codec": {"peer": "top-k"}}, "by top-k a model arrives as something else"),
        ({"codec": {"peer": {"name": "int8", "error_feedback": True}}}, "codec.peer.error_feedback = True: is for"),
        (
            {
                "codec": {"up": {"name": "top-k", "delta": True}},
                "fault": [{"kind": "lose", "probability": 0.1}],
                "schedule": {"kind": "asynchronous"},
            },
            "codec.up.delta = True: a message between peers may be lost",
        ),
    ],
    ids=str,
)
def test_so_it_is_among_peers(settings: dict[str, Any], said: str) -> None:
    tables = description(algorithm={"name": "dfedu"}, topology={"name": "ring"}) | settings
    with pytest.raises(DescriptionError) as problem:
        Study(validate(tables), RUN)
    assert said in str(problem.value)


def test_a_difference_to_what_a_crash_makes_a_client_forget_is_refused() -> None:
    crash = [{"kind": "crash", "clients": [1], "at_s": 1, "until_s": 2, "keeps_state": False}]
    tables = description(codec={"down": {"name": "top-k", "delta": True}}, fault=crash)
    with pytest.raises(DescriptionError, match=r"codec\.down\.delta = True: who crashes with keeps_state = false"):
        Study(validate(tables), RUN)
    Study(validate(tables | {"codec": {"up": {"name": "top-k", "delta": True}}}), RUN)  # to what has just come


def test_a_codec_that_leaves_most_of_a_model_out_is_warned_of() -> None:
    warned = "codec.up: top-k without delta = true: what is left out arrives as 0"
    assert any(warned in one for one in Study(validate(description(codec={"up": "top-k"})), RUN).warnings)


def test_none_is_no_codec_unless_something_comes_on_top() -> None:
    assert not load({"up": "none", "down": {"name": "none"}}, is_for_peers=False, method="fedavg")
    assert load({"up": {"name": "none", "zstd": True}}, is_for_peers=False, method="fedavg").up is not None
    assert not load(None, is_for_peers=False, method="fedavg")
