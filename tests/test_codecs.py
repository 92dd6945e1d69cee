"""Each codec by itself: its frame has the length that its file states, and its receiver sees what its formula says."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pflsim import catalogue
from pflsim.codecs.bf16 import Brain
from pflsim.codecs.fp16 import Half
from pflsim.codecs.int4 import FourBits
from pflsim.codecs.int8 import EightBits
from pflsim.codecs.low_rank import LowRank
from pflsim.codecs.qsgd import QSGD
from pflsim.codecs.random_k import RandomK
from pflsim.codecs.sign import Sign
from pflsim.codecs.top_k import TopK
from pflsim.coding.chunks import packed, unpacked
from pflsim.coding.codec import REQUIRED
from pflsim.errors import BadMessage
from pflsim.rng import stream

LAYOUT = ((20, 30), (30,), (5, 3, 2, 2), (7,))  # 697 numbers
VARIANTS: dict[str, Any] = {
    **{name: catalogue.find("codecs", name, "codec")() for name in catalogue.names("codecs")},
    "int8, chunks of 7": EightBits(chunk=7),
    "int4, one chunk": FourBits(chunk=1 << 20),
    "qsgd, 2 bits": QSGD(bits=2, chunk=16),
    "qsgd, 8 bits": QSGD(bits=8),
    "sign, chunks of 9": Sign(chunk=9),
    "top-k, all": TopK(share=1.0),
    "top-k, a tenth": TopK(share=0.1),
    "random-k, as they are": RandomK(share=0.3, scaled=False),
    "low-rank 1": LowRank(rank=1, steps=1),
}
UNBIASED = [name for name, codec in VARIANTS.items() if not codec.biased]
every_codec = pytest.mark.parametrize("codec", VARIANTS.values(), ids=VARIANTS)


def vector(n: int, *, seed: int = 1, heavy: bool = False) -> torch.Tensor:
    """Numbers of any sign, with `heavy` of very different sizes."""
    drawn = stream(seed, "vector").normal(size=n)
    return torch.from_numpy((drawn**5 if heavy else drawn).astype(np.float32))


def seen(codec: Any, v: torch.Tensor, number: int = 0, shapes: Any = ()) -> torch.Tensor:
    """What the receiver has of v, through bytes that are not the sender's."""
    frame = bytes(codec.encode(v, stream(7, "codec", number), shapes))
    decoded: torch.Tensor = codec.decode(np.frombuffer(frame, dtype=np.uint8), len(v), shapes)
    return decoded


@every_codec
@pytest.mark.parametrize("n", [1, 2, 64, 65, 697, 65_536, 65_537])
def test_a_frame_has_the_length_that_is_stated_and_is_decoded_to_as_many_numbers(codec: Any, n: int) -> None:
    frame = codec.encode(vector(n), stream(7, n), ())
    assert frame.dtype == np.uint8 and len(frame) == codec.frame_bytes(n)
    decoded = codec.decode(frame, n, ())
    assert decoded.dtype == torch.float32 and decoded.shape == (n,) and bool(decoded.isfinite().all())


@pytest.mark.parametrize(
    ("codec", "n", "length"),
    [
        (VARIANTS["none"], 1000, 4000),
        (VARIANTS["fp16"], 1000, 2000),
        (VARIANTS["bf16"], 1000, 2000),
        (EightBits(chunk=300), 1000, 4 * 4 + 1000),
        (FourBits(chunk=64), 1001, 4 * 16 + 501),
        (QSGD(bits=2, chunk=512), 1001, 4 * 2 + 251),
        (Sign(chunk=1024), 1025, 4 * 2 + 129),
        (TopK(share=0.01), 1000, 2 * 10 + 4 * 10),
        (TopK(share=0.01), 100_000, 4 * 1000 + 4 * 1000),
        (TopK(share=0.5), 1000, 125 + 4 * 500),
        (RandomK(share=0.01), 1000, 8 + 4 * 10),
    ],
    ids=str,
)
def test_the_lengths_are_those_of_the_docstrings(codec: Any, n: int, length: int) -> None:
    assert codec.frame_bytes(n) == length


def test_low_rank_takes_a_model_apart_and_sends_what_is_no_matrix_as_it_is() -> None:
    codec, n = LowRank(rank=2), sum(map(math.prod, LAYOUT))
    frame = codec.encode(vector(n), stream(7), LAYOUT)
    assert len(frame) == codec.frame_bytes(n, LAYOUT) == 4 * (2 * (20 + 30) + 30 + 2 * (5 + 12) + 7)
    decoded = codec.decode(frame, n, LAYOUT)
    assert torch.equal(decoded[600:630], vector(n)[600:630]) and torch.equal(decoded[-7:], vector(n)[-7:])
    assert torch.linalg.matrix_rank(decoded[:600].view(20, 30), rtol=1e-5) == 2


def test_low_rank_gives_a_matrix_of_that_rank_back() -> None:
    matrix = vector(40).view(20, 2) @ vector(60, seed=2).view(2, 30)
    assert torch.allclose(seen(LowRank(rank=2), matrix.reshape(-1), shapes=((20, 30),)), matrix.reshape(-1), atol=1e-5)


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank_projects_so_that_what_it_leaves_out_is_at_right_angles(rank: int) -> None:
    v = vector(600)
    kept = seen(LowRank(rank=rank), v, shapes=((20, 30),))
    assert abs(float(kept @ (v - kept))) < 1e-3
    assert float(kept.square().sum() + (v - kept).square().sum()) == pytest.approx(float(v.square().sum()), rel=1e-5)


@every_codec
def test_nothing_is_seen_as_nothing(codec: Any) -> None:
    assert not seen(codec, torch.zeros(100)).any()


@every_codec
@pytest.mark.parametrize("heavy", [False, True])
def test_the_error_is_within_the_variance_that_a_codec_states(codec: Any, heavy: bool) -> None:
    v = vector(300, heavy=heavy)
    errors = [float((seen(codec, v, number) - v).square().sum()) for number in range(60)]
    bound = codec.variance(300) * float(v.square().sum())
    assert np.mean(errors) <= bound + 4 * np.std(errors) / 60**0.5 + 1e-9


def deviation(codec: Any, v: np.ndarray) -> np.ndarray:
    """The standard deviation of each number that the receiver sees, in closed form."""
    if isinstance(codec, RandomK):
        k = math.ceil(codec.share * len(v))
        return np.abs(v) * np.sqrt(len(v) / k - 1)
    if not isinstance(codec, EightBits | FourBits | QSGD):
        return np.zeros_like(v)
    levels = {8: 127, 4: 7, 2: 1}[getattr(codec, "bits", 8 if isinstance(codec, EightBits) else 4)]
    out = []
    for start in range(0, len(v), codec.chunk):
        part = v[start : start + codec.chunk]
        grid = (np.linalg.norm(part) if isinstance(codec, QSGD) else np.abs(part).max()) / levels
        above = part / grid - np.floor(part / grid)
        out.append(grid * np.sqrt(above * (1 - above)))  # of a number that is rounded up with the chance `above`
    return np.concatenate(out)


@pytest.mark.parametrize("name", UNBIASED)
def test_what_is_not_biased_has_the_right_mean_and_spread(name: str) -> None:
    codec, v, draws = VARIANTS[name], vector(150, heavy=True), 2000
    drawn = np.stack([seen(codec, v, number).numpy() for number in range(draws)]).astype(np.float64)
    expected = deviation(codec, v.numpy().astype(np.float64))
    off = np.abs(drawn.mean(0) - v.numpy())
    assert (off <= 5 * expected / draws**0.5 + 2e-6 * np.abs(v.numpy()).max()).all()
    assert drawn.var(0).sum() == pytest.approx((expected**2).sum(), rel=0.05, abs=1e-9)


@pytest.mark.parametrize(("codec", "digits"), [(Half(), 11), (Brain(), 8)], ids=str)
def test_short_floats_are_the_nearest_ones(codec: Any, digits: int) -> None:
    v = vector(5000)
    error = (seen(codec, v).double() - v.double()).abs() / v.double().abs()
    assert 0.9 * 2.0**-digits < float(error.max()) <= 2.0**-digits


def test_half_precision_ends_at_its_largest_number() -> None:
    assert seen(Half(), torch.tensor([1e6, -7e4, 65504.0])).tolist() == [65504.0, -65504.0, 65504.0]


def test_a_frame_of_four_bits_is_what_its_docstring_says() -> None:
    frame = FourBits(chunk=4).encode(torch.tensor([7.0, -7.0, 0.0, 3.0, 2.0, -14.0]), stream(1), ())
    assert frame[:8].view("<f4").tolist() == [7.0, 14.0]
    assert list(frame[8:]) == [14 | 0 << 4, 7 | 10 << 4, 8 | 0 << 4]
    assert FourBits(chunk=4).decode(frame, 6).tolist() == [7.0, -7.0, 0.0, 3.0, 2.0, -14.0]


def test_a_frame_of_signs_is_what_its_docstring_says() -> None:
    frame = Sign(chunk=4).encode(torch.tensor([1.0, -3.0, 0.0, -4.0, -5.0]), stream(1), ())
    assert frame[:8].view("<f4").tolist() == [2.0, 5.0]
    assert list(frame[8:]) == [0b00000101]
    assert Sign(chunk=4).decode(frame, 5).tolist() == [2.0, -2.0, 2.0, -2.0, -5.0]


def test_of_equal_numbers_top_k_takes_the_first() -> None:
    v = torch.tensor([1.0, -2.0, 2.0, 1.0, -2.0, 0.0] * 10)
    kept = seen(TopK(share=0.5), v)  # all 30 of size 2
    assert torch.equal(kept, torch.where(v.abs() == 2, v, 0.0))
    assert seen(TopK(share=0.6), v).nonzero().flatten().tolist() == sorted(
        [*range(1, 60, 6), *range(2, 60, 6), *range(4, 60, 6), 0, 3, 6, 9, 12, 15]
    )


def test_top_k_tells_positions_in_two_bytes_in_four_or_in_a_bitmap() -> None:
    v = torch.zeros(70_000)
    v[[3, 69_999]] = torch.tensor([2.0, -1.0])
    short = TopK(share=2 / 65_536).encode(v[:65_536], stream(1), ())
    assert short[:4].view("<u2").tolist() == [0, 3] and short[4:].view("<f4").tolist() == [0.0, 2.0]
    long = TopK(share=2 / 70_000).encode(v, stream(1), ())
    assert long[:8].view("<u4").tolist() == [3, 69_999] and long[8:].view("<f4").tolist() == [2.0, -1.0]
    marked = TopK(share=0.25).encode(v[:8], stream(1), ())
    assert list(marked[:1]) == [0b00001001] and marked[1:].view("<f4").tolist() == [0.0, 2.0]


def test_random_k_keeps_what_its_seed_says_and_makes_up_for_the_rest() -> None:
    v, codec = vector(1000), RandomK(share=0.25)
    frame = codec.encode(v, stream(5), ())
    where = np.sort(stream(int(frame[:8].view("<u8")[0]), "random-k").choice(1000, 250, replace=False, shuffle=False))
    kept = codec.decode(frame, 1000)
    assert kept.nonzero().flatten().tolist() == where.tolist()
    assert torch.equal(kept[where], 4 * v[where])
    plain = seen(RandomK(share=0.25, scaled=False), v)
    assert torch.equal(plain[plain != 0], v[plain != 0]) and int((plain != 0).sum()) == 250


def test_equal_streams_give_equal_frames_and_others_do_not() -> None:
    v = vector(500)
    for codec in (EightBits(), FourBits(), QSGD(), RandomK(), LowRank(rank=1)):
        shapes = ((20, 25),)
        first, again, other = (bytes(codec.encode(v, stream(1, number), shapes)) for number in (1, 1, 2))
        assert first == again != other


@given(st.lists(st.integers(0, 255), max_size=40), st.sampled_from([1, 2, 4, 8]))
def test_levels_come_out_of_their_bits_as_they_went_in(numbers: list[int], bits: int) -> None:
    levels = np.array([number % (1 << bits) for number in numbers], dtype=np.uint8)
    frame = packed(levels, bits)
    assert len(frame) == math.ceil(Fraction(len(levels) * bits, 8))
    assert unpacked(frame, len(levels), bits).tolist() == levels.tolist()


def changed(frame: np.ndarray, **bytes_at: int) -> np.ndarray:
    out = frame.copy()
    for at, value in bytes_at.items():
        out[int(at[1:])] = value
    return out


@pytest.mark.parametrize(
    ("codec", "n", "at", "reason"),
    [
        (EightBits(chunk=100), 100, {"_2": 0x80, "_3": 0x7F}, "a scale is not a finite number from 0"),
        (EightBits(chunk=100), 100, {"_3": 0xBF}, "a scale is not a finite number from 0"),
        (EightBits(chunk=100), 100, {"_50": 255}, "a level of 128, the last is 127"),
        (FourBits(chunk=100), 100, {"_9": 0xF0}, "a level of 8, the last is 7"),
        (FourBits(chunk=99), 99, {"_53": 0x70}, "the last byte is not filled with zeros"),
        (Sign(chunk=100), 100, {"_16": 0x10}, "the last byte is not filled with zeros"),
        (TopK(share=0.02), 100, {"_0": 99}, "the positions do not ascend below 100"),
        (TopK(share=0.02), 100, {"_2": 100}, "the positions do not ascend below 100"),
        (TopK(share=0.5), 100, {"_3": 0, "_4": 0}, "numbers are marked, 50 came"),
    ],
    ids=str,
)
def test_a_frame_that_cannot_be_is_refused_with_the_reason(codec: Any, n: int, at: dict[str, int], reason: str) -> None:
    frame = changed(codec.encode(torch.ones(n), stream(1), ()), **at)
    with pytest.raises(BadMessage, match=reason):
        codec.decode(frame, n)


@every_codec
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_bytes_of_the_right_length_are_refused_or_decoded(codec: Any, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 90))
    length = codec.frame_bytes(n)
    frame = np.frombuffer(data.draw(st.binary(min_size=length, max_size=length)), dtype=np.uint8)
    try:
        decoded = codec.decode(frame, n, ())
    except BadMessage:
        return
    assert decoded.dtype == torch.float32 and decoded.shape == (n,)


@pytest.mark.parametrize("name", catalogue.names("codecs"))
def test_a_codec_has_all_that_the_interface_asks_for_and_says_what_a_reader_must_know(name: str) -> None:
    found = catalogue.find("codecs", name, "codec")
    assert [one for one in REQUIRED if not hasattr(found, one)] == []
    told = __import__(f"pflsim.codecs.{name.replace('-', '_')}", fromlist=["_"]).__doc__ or ""
    assert "Formula:" in told and "Frame:" in told and "iased" in told
    if name in ("top-k", "random-k"):
        assert "Index coding:" in told
