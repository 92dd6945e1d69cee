"""What comes over a network and is well formed, and still cannot have been sent by who follows the run."""

from functools import cache
from typing import Any

import msgpack
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodes.inspection import Inspection
from nodes.programs import port_of
from nodes.sequential import FactList
from pflsim.errors import BadMessage
from pflsim.messages.licence import Arbiter
from pflsim.messages.port import Port, frame_sizes
from pflsim.messages.wire import DTYPES, EVAL_RESULT, JOIN, PROTOCOL, RESULT, STATE, Message, decode
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from tests.carriers import Alone
from tests.launching import description
from tests.test_peers import peers
from tests.test_wire import nested

RUN = b"8 bytes."
DIGEST = bytes(32)
GOOD = {"test": [1, 2, 0.5]}
OWED = ((RESULT, 7), (EVAL_RESULT, 0), (STATE, 0), (JOIN, 0))
FLIGHT = [5_000_000, 1_000_000, 1.0, 2_000, 2_000.0, 2_000.0]
FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cache
def study(is_for_peers: bool = False, **more: Any) -> Study:
    return Study(validate(peers("sync") if is_for_peers else description(**more)), RUN)


def server_port() -> Port:
    """The port of a server to which c003 owes four answers."""
    port = port_of(study(), "server", VirtualClock(), Alone(), FactList())
    port.inspect = Inspection(study(), "server")
    for kind, work_id in OWED:
        port.expect("c003", kind, work_id)
    return port


def result(**changed: Any) -> Message:
    up = study().first_up(3)
    fields = {"kind": RESULT, "sender": "c003", "to": "server", "round": 1, "samples": 1, "tensors": up} | changed
    return Message(**fields)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (result(tensors={}), "nothing else came, 'u' f4"),
        (result(tensors={"u": torch.zeros(3)}), "'u' f4 [3] came, 'u' f4 ["),
        (result(tensors={"v": torch.zeros(3)}), "'v' f4 [3] came, 'u' f4 ["),
        (result(round=0), "a RESULT of round 0, of 1 to 3"),
        (result(round=4), "a RESULT of round 4, of 1 to 3"),
        (result(samples=10**6), "a RESULT from 1000000 samples of"),
        (result(facts={"loss": 1.0}), "a RESULT tells {'loss': 1.0}"),
        (Message("LOSS", "c003", "server", facts={"loss": "x"}), "a LOSS tells {'loss': 'x'}"),
        (Message(EVAL_RESULT, "c003", "server"), "[] are evaluated, ['global', 'finetuned'] are expected"),
        (Message(EVAL_RESULT, "c003", "server", facts={"global": 1}), "an evaluation of 'global' on 1"),
        (Message(EVAL_RESULT, "c003", "server", facts={"global": {"test": [2, 1, 0.0]}}), "says [2, 1, 0.0]"),
        (Message(EVAL_RESULT, "c003", "server", facts={"global": {"train": [1, 1, 0.0]}}), "on {'train'"),
        (Message(STATE, "c003", "server", facts={"digest": DIGEST}), "are no two digests"),
        (Message(STATE, "c003", "server", tensors={"w": torch.zeros(1)}), "are no two digests"),
        (Message(JOIN, "c003", "server", tensors={"w": torch.zeros(1)}), "a JOIN has no tensors"),
    ],
)
def test_what_no_client_of_this_run_sends_is_refused_and_named(message: Message, words: str) -> None:
    with pytest.raises(BadMessage) as problem:
        Inspection(study(), "server")(message)
    assert words in str(problem.value)
    assert problem.value.message is message


def test_what_clients_send_passes() -> None:
    inspect = Inspection(study(), "server")
    inspect(result())
    inspect(Message(EVAL_RESULT, "c003", "server", facts={"global": GOOD, "finetuned": GOOD}))
    inspect(Message(STATE, "c003", "server", facts={"digest": DIGEST, "trace": DIGEST}))
    inspect(Message(JOIN, "c003", "server", facts=study().identity()))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("STOP", "c001", "c000"), "a STOP comes from the coordinator only"),
        (Message("PUSH", "c002", "c000", round=1), "c002 is no neighbour of c000"),
        (Message("PUSH", "c001", "c000", round=10**9), "of round 1000000000"),
        (Message("PUSH", "c001", "c000", round=1, tensors={"w": torch.zeros(1)}), "'w' f4 [1] came"),
        (
            Message(JOIN, "c001", "coordinator", facts={"place": ["p", "udp://x"]}),
            "says that it is at ['p', 'udp://x']",
        ),
        (Message(JOIN, "c001", "coordinator", facts={"place": "x"}), "says that it is at 'x'"),
        (Message("FINISHED", "c001", "coordinator", facts={"rounds": 1, "stopped": "", "sent": {"x": 1}}), "ends with"),
    ],
)
def test_so_is_what_no_peer_sends(message: Message, words: str) -> None:
    with pytest.raises(BadMessage) as problem:
        Inspection(study(is_for_peers=True), message.to)(message)
    assert words in str(problem.value)


def test_only_reports_are_taken_for_reports() -> None:
    arbiter = Arbiter(("c000", "c001"), 1)
    right: dict[str, Any] = {"next_ns": 1, "wants": True, "sent": {"c001": [1, 5]}, "come": {"c001": (1, 5)}}
    assert arbiter.is_report(right)
    for wrong in (
        {},
        right | {"next_ns": 1.0},
        right | {"next_ns": -1},
        right | {"wants": 1},
        right | {"sent": []},
        right | {"sent": {"c009": [1, 5]}},
        right | {"come": {"c001": [1]}},
        right | {"come": {"c001": 7}},
        right | {"come": {"c001": [1, "x"]}},
        right | {"more": 1},
    ):
        assert not arbiter.is_report(wrong), wrong


# whatever comes of an authenticated client, by itself


def delivered(header: list[Any], stamp: list[Any], *frames: bytes) -> bool | None:
    """Deliver it; None if it is refused, after which the port is as before."""
    port = server_port()
    before = port.waits_for(), dict(port._seen), port._inbox.is_empty()
    whole = [msgpack.packb(header), msgpack.packb(stamp), *frames]
    try:
        message, read = decode(whole, RUN)
        return port.deliver(message, read, frame_sizes(whole))
    except BadMessage:
        assert (port.waits_for(), dict(port._seen), port._inbox.is_empty()) == before
        return None


def header(kind: str, tensors: Any = (), facts: Any = None, work_id: int = 7) -> list[Any]:
    return [PROTOCOL, RUN, kind, "c003", "server", 5, 1, 0, work_id, 1, list(tensors), {} if facts is None else facts]


def right() -> tuple[list[Any], bytes]:
    """What the client should answer."""
    up = study().first_up(3)["u"]
    return header(RESULT, [["u", "f4", list(up.shape), "raw"]]), up.numpy().tobytes()


STAMP = [5_000_000, 0, FLIGHT, 0]


def test_what_the_fuzzing_begins_with_is_taken() -> None:
    answer, frame = right()
    assert delivered(answer, STAMP, frame) is True
    assert delivered(header("PROMISE", facts={"not_before_ns": 9}), [0, 0, None, 0]) is True


@FUZZ
@given(
    st.sampled_from(["RESULT", "GONE", "LOSS", "EVAL_RESULT", "STATE", "PROMISE", "JOIN", "STOP", "WAITING"]), nested
)
def test_any_facts_in_any_kind_are_taken_or_refused_as_a_whole(kind: str, facts: Any) -> None:
    for work_id in (0, 7):
        delivered(header(kind, facts=facts, work_id=work_id), [0, 0, FLIGHT, 0])


named = st.sampled_from(["digest", "trace", "never", "not_before_ns", "loss", "global", "place", "x"])
values = nested | st.binary(min_size=32, max_size=32) | st.sampled_from(["RESULT", "STATE", 5, {"test": [1, 2, 0.5]}])


@FUZZ
@given(
    st.sampled_from(["RESULT", "LOSS", "EVAL_RESULT", "STATE", "PROMISE"]), st.dictionaries(named, values, max_size=3)
)
def test_so_are_facts_with_the_right_names(kind: str, facts: dict[str, Any]) -> None:
    for work_id in (0, 7):
        delivered(header(kind, facts=facts, work_id=work_id), [0, 0, FLIGHT, 0])


number = st.integers(-(2**63), 2**64 - 1) | st.floats() | st.sampled_from([0, 1, 2**62, 5_000_000]) | st.none()


@FUZZ
@given(
    st.lists(number | st.lists(number, max_size=9), min_size=3, max_size=5), st.lists(number, min_size=5, max_size=8)
)
def test_any_stamp_and_any_flight_are(stamp: list[Any], flight: list[Any]) -> None:
    answer, frame = right()
    delivered(answer, stamp, frame)
    delivered(answer, [5_000_000, 0, flight, 0], frame)


@FUZZ
@given(st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 700), max_size=4), nested)
def test_no_other_shape_or_type_is_taken_than_the_clients_own(dtype: str, shape: list[int], codec: Any) -> None:
    answer, frame = right()
    expected = answer[10][0]
    for description_ in (["u", dtype, shape, "raw"], ["u", "f4", expected[2], codec], ["u", dtype, shape, codec]):
        if description_ != expected:
            answer[10] = [description_]
            assert delivered(answer, STAMP, frame) is None
