"""What is kept is the same when it is read again, bit for bit, and nothing else is made of a file."""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, NamedTuple

import msgpack
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from nodes.standstill import CHECKPOINT, UNDER_WAY, Standstill
from pflsim.kept import NOT_KEPT, read, write


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclass
class Several:
    """A state with special containers, and something that is not kept."""

    counted: Counter[str] = field(default_factory=Counter)
    nested: defaultdict[int, dict[int, Any]] = field(default_factory=lambda: defaultdict(dict))
    shown: Any = None
    forgotten: Any = field(default=None, metadata=NOT_KEPT)


def again(value: Any) -> Any:
    file = BytesIO()
    write(file, value)
    file.seek(0)
    return read(file, (Pair, Several))


scalars = (
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**64 - 1)
    | some.floats(allow_nan=False)
    | some.text()
    | some.binary()
)
keys = some.integers(-5, 5) | some.text() | some.tuples(some.text(), some.integers(0, 9))
values = some.recursive(
    scalars,
    lambda inner: (
        some.lists(inner)
        | some.lists(inner).map(tuple)
        | some.lists(inner).map(deque)
        | some.dictionaries(keys, inner)
        | some.frozensets(some.integers(0, 99), max_size=1)
        | some.sets(some.integers(0, 99), max_size=1)
        | some.builds(Pair, inner, inner)
        | some.builds(Several, shown=inner)
    ),
    max_leaves=12,
)


@given(values)
def test_numbers_texts_and_containers_come_back_equal_and_of_the_same_type(value: Any) -> None:
    found = again(value)
    assert found == value
    assert type(found) is type(value)
    assert repr(found) == repr(value), "so do the types within, and the order of what has one"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 4), (2, 1, 3)])
def test_tensors_come_back_bit_for_bit_with_their_layout(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 3).to(dtype)
    for one in (tensor, tensor.transpose(0, -1) if tensor.dim() > 1 else tensor):
        found = again(one)
        assert found.dtype == one.dtype
        assert (found.shape, found.stride()) == (one.shape, one.stride())
        assert torch.equal(found, one)


def test_numbers_that_are_none_come_back_with_their_bits() -> None:
    bits = torch.tensor([0x7FC00001, 0x7F800000, -0x80000000], dtype=torch.int32)
    assert torch.equal(again(bits.view(torch.float32)).view(torch.int32), bits)
    assert str(again([float("nan"), float("-inf"), -0.0])) == "[nan, -inf, -0.0]"


def test_a_tensor_that_occurs_twice_is_one_again() -> None:
    tensor = torch.randn(1000)
    file = BytesIO()
    write(file, {"one": tensor, "other": [tensor, tensor.clone()]})
    assert 8000 < file.tell() < 9000
    found = again({"one": tensor, "other": [tensor, tensor.clone()]})
    assert found["one"] is found["other"][0]
    assert found["one"] is not found["other"][1]


def test_a_state_has_its_special_containers_again_and_not_what_is_not_kept() -> None:
    state = Several(Counter({"a": 2}), shown=torch.sin, forgotten=3)
    state.nested[1][2] = Pair(1, (2, 3))
    found = again(state)
    assert found == Several(Counter({"a": 2}), defaultdict(dict, {1: {2: Pair(1, (2, 3))}}))
    assert found.counted["b"] == 0
    assert found.nested[7] == {}


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(TypeError, match="a Random cannot be kept"):
        from random import Random

        write(BytesIO(), {"rng": Random(1)})


@pytest.mark.parametrize(
    "parts",
    [
        [0, ["record", "Popen", [["args", "true"]]]],
        [0, ["tensor", 0]],
        [0, ["module", ["os"]]],
        [1, ["load", [1], [1], b"1"], ["tensor", 0]],
        [1, ["float32", [1 << 40], [1], b"1234"], None],
        [1],
        [],
    ],
)
def test_a_file_makes_nothing_but_states(parts: list[Any]) -> None:
    file = BytesIO(b"".join(map(msgpack.packb, parts)))
    with pytest.raises(ValueError, match="no kept state"):
        read(file, (Pair, Several))


def told(standstill: Standstill, *facts: tuple[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [out for name, fact in facts for out in standstill.sorted(name, fact)]


def test_what_is_told_after_a_checkpoint_waits_for_those_who_do_not_stand() -> None:
    first = told(
        Standstill(("a", "b")),
        ("a", (1,)),
        ("a", (CHECKPOINT, 5, {"a": "x"})),
        ("a", (2,)),
        ("b", (3,)),
        ("c", (4,)),
        ("a", (UNDER_WAY, 5, {})),
        ("a", (CHECKPOINT, 10, {"a": "z"})),
        ("a", (5,)),
        ("b", (CHECKPOINT, 5, {"b": "y"})),
        ("a", (6,)),
        ("b", (CHECKPOINT, 10, {"b": "w"})),
    )
    assert first == [
        (1,),
        (3,),
        (4,),
        (UNDER_WAY, 5, {}),
        (CHECKPOINT, 5, {"a": "x", "b": "y"}),
        (2,),
        (CHECKPOINT, 10, {"a": "z", "b": "w"}),
        (5,),
        (6,),
    ]


def test_when_somebody_dies_nothing_waits_any_more() -> None:
    standstill = Standstill(("a", "b"))
    died = ("events", "b", "died", "why", 0, 0.0)
    assert told(standstill, ("a", (CHECKPOINT, 5, {})), ("a", (2,)), ("b", died), ("a", (3,))) == [(2,), died, (3,)]
