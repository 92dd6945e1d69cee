"""An actor's port, without sockets or processes: what is handed out when, what takes time, and what is refused."""

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import pytest
import torch

from nodes.sequential import FactList, Sequential, run_sequentially
from pflsim.errors import BadMessage, RunFailed
from pflsim.messages import wire
from pflsim.messages.port import Port, frame_sizes
from pflsim.messages.wire import EVAL, EVAL_RESULT, JOIN, RESULT, STATE, STOP, WORK, Frame, Message, decode
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from pflsim.timing.links import Links, wire_bytes
from tests.carriers import Alone, last_posted
from tests.launching import description

RUN = b"8 bytes."
CLIENTS = ("c000", "c001", "c002")
IDEAL: dict[str, Any] = {
    "client": {"uplink_mbps": float("inf"), "downlink_mbps": float("inf")},
    "server": {"uplink_mbps": float("inf"), "downlink_mbps": float("inf")},
    "latency_ms": 0.0,
}
NS_PER_BYTE = 1000  # of a line of 8 Mbit/s
Program = Callable[[Port], None]


class Keeping(Sequential):
    """The sequential carrier; it keeps what was posted, in that order."""

    def __init__(self) -> None:
        super().__init__(RUN)
        self.posted: list[tuple[str, list[Frame]]] = []

    def post(self, to: str, frames: Sequence[Frame]) -> None:
        self.posted.append((to, list(frames)))
        super().post(to, frames)


def play(programs: dict[str, Program], links: dict[str, Any] = IDEAL, carrier: Sequential | None = None) -> FactList:
    """Run the actors' programs to their end."""
    told, between, stage = FactList(), Links(links, list(programs)), carrier or Sequential(RUN)
    for name, program in programs.items():
        stage.add(Port(name, RUN, VirtualClock(), between, stage, told), program)
    stage.run()
    return told


def worker(*work_ns: int) -> Program:
    """A client that works for so long at each request, and answers."""

    def program(port: Port) -> None:
        for cost_ns in work_ns:
            asked = port.recv()
            with port.busy(cost_ns):
                pass
            port.send("server", RESULT, work_id=asked.work_id)
        port.finish()

    return program


def asking(*rounds: Sequence[str], got: list[tuple[int, str, int]]) -> Program:
    """A server that asks all of these at once and takes their answers, for each round: (time, sender, work id)."""

    def program(port: Port) -> None:
        work_id = 0
        for names in rounds:
            for name in names:
                work_id += 1
                port.send(name, WORK, work_id=work_id)
            for _ in names:
                answer = port.recv()
                got.append((port.now_ns, answer.sender, answer.work_id))

    return program


# order and time


def test_messages_are_handed_out_by_arrival_then_sender_then_sequence() -> None:
    got: list[tuple[int, str, int]] = []
    programs = {"c002": worker(10), "c001": worker(5, 0), "c000": worker(10)}
    play({"server": asking(["c002", "c001", "c000", "c001"], got=got)} | programs)
    assert got == [
        (1 + 5 + 1, "c001", 2),  # each message takes one nanosecond
        (1 + 5 + 1 + 1, "c001", 4),  # sent in the same nanosecond, and so after the first on the same connection
        (1 + 10 + 1, "c000", 3),
        (1 + 10 + 1, "c002", 1),
    ]


def test_work_moves_the_time_of_who_does_it_and_of_nobody_else() -> None:
    seen: list[tuple[str, int]] = []

    def working(port: Port) -> None:
        with port.busy(700):
            seen.append(("while it works", port.now_ns))
        seen.append(("after it", port.now_ns))

    def idle(port: Port) -> None:
        seen.append(("elsewhere", port.now_ns))

    told = play({"c000": working, "c001": idle})
    assert seen == [("while it works", 0), ("elsewhere", 0), ("after it", 700)]
    assert [fact for fact in told.facts if fact[0] == "spans"] == [("spans", "c000", "compute", 0, 700, 0)]


def test_the_wait_for_an_answer_is_recorded_with_its_round() -> None:
    def server(port: Port) -> None:
        port.send("c000", WORK, round=3)
        port.recv()

    def client(port: Port) -> None:
        asked = port.recv()
        with port.busy(50):
            pass
        port.send("server", RESULT, round=asked.round)
        port.finish()

    told = play({"server": server, "c000": client})
    assert [fact[1:] for fact in told.facts if fact[0] == "spans"] == [
        ("c000", "wait", 0, 1, 3),
        ("c000", "compute", 1, 51, 3),
        ("server", "wait", 0, 52, 3),
    ]


def line(payload: dict[str, torch.Tensor], between_ns: int) -> dict[str, int]:
    """When two clients have what the server sends them over its uplink of 8 Mbit/s, the second so much later."""
    arrived: dict[str, int] = {}

    def server(port: Port) -> None:
        port.send("c000", WORK, payload)
        if between_ns:
            with port.busy(between_ns):
                pass
        port.send("c001", WORK, payload)
        port.finish()

    def client(port: Port) -> None:
        port.recv()
        arrived[port.name] = port.now_ns

    links = IDEAL | {"server": {"uplink_mbps": 8, "downlink_mbps": 8}, "latency_ms": 1.0}
    play({"server": server, "c000": client, "c001": client}, links)
    return arrived


def size_of(payload: dict[str, torch.Tensor]) -> int:
    """What one of those messages weighs on the wire."""
    descriptions, frames = wire.tensor_frames(payload)
    header = wire.encode_header(Message(WORK, "server", "c000", 1), RUN, descriptions)
    return wire_bytes([len(header), *(memoryview(frame).nbytes for frame in frames)])


def test_messages_of_one_instant_share_the_uplink() -> None:
    payload = {"w": torch.zeros(1000)}
    size = size_of(payload)
    both_ns = 2 * size * NS_PER_BYTE + 1_000_000
    assert line(payload, between_ns=0) == {"c000": both_ns, "c001": both_ns}


def test_what_is_sent_later_takes_what_the_earlier_message_leaves() -> None:
    payload = {"w": torch.zeros(1000)}
    size = size_of(payload)
    first_ns = size * NS_PER_BYTE + 1_000_000
    assert line(payload, between_ns=1000) == {"c000": first_ns, "c001": first_ns + size * NS_PER_BYTE}


def test_evaluation_and_control_take_no_simulated_time_and_are_not_charged() -> None:
    at: list[int] = []

    def server(port: Port) -> None:
        port.expect("c000", JOIN)
        port.recv()
        with port.busy(500):
            pass
        for kind in (EVAL, STOP):
            port.send("c000", kind, {"w": torch.zeros(100)})
            port.recv()
            at.append(port.now_ns)
        assert port.charged_bytes == 0

    def client(port: Port) -> None:
        port.send("server", JOIN)
        for kind in (EVAL_RESULT, STATE):
            port.recv()
            port.send("server", kind, facts={"seen": 1})
        port.finish()

    slow = IDEAL | {"client": {"uplink_mbps": 0.001, "downlink_mbps": 0.001}, "latency_ms": 1000.0}
    told = play({"server": server, "c000": client}, slow)
    assert at == [500, 500]
    assert [fact[2] for fact in told.facts if fact[0] == "spans"] == ["compute"]


def test_a_method_is_charged_for_headers_and_payload_at_both_ends_but_not_for_stamps() -> None:
    charged: dict[str, int] = {}

    def server(port: Port) -> None:
        port.send("c000", WORK, {"w": torch.zeros(10)})
        port.recv()
        charged["server"] = port.charged_bytes

    def client(port: Port) -> None:
        port.recv()
        port.send("server", RESULT, {"u": torch.zeros(5), "v": torch.zeros(1, dtype=torch.float64)})
        port.finish()
        charged["c000"] = port.charged_bytes

    told = play({"server": server, "c000": client})
    sent = [fact for fact in told.facts if fact[0] == "sent"]
    assert [fact[7] for fact in sent] == [40, 28]
    assert charged["server"] == charged["c000"] == sum(fact[7] + fact[8] for fact in sent)


def test_both_ends_tell_the_same_bytes_of_every_message() -> None:
    told = run_sequentially(Study(validate(description()), RUN)).facts
    ends = {
        end: {fact[1:6]: fact[size : size + 3] for fact in told if fact[0] == end}
        for end, size in (("sent", 7), ("received", 6))
    }
    assert len(ends["sent"]) == 4 + 3 * 4 * 2 + 3 * 4 * 2 + 4 * 2  # joins, rounds, evaluations, ends
    assert ends["sent"] == ends["received"]


# encoding once


def test_the_same_tensors_are_encoded_once_for_all_who_get_them_at_one_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    encode = wire.tensor_frames
    monkeypatch.setattr(wire, "tensor_frames", lambda tensors, coded: (calls.append(list(tensors)), encode(tensors))[1])
    w, other, carrier = torch.arange(5.0), torch.arange(5.0), Keeping()

    def server(port: Port) -> None:
        for name, tensors in zip(
            (*CLIENTS, "c000", "c001"), [{"x": w}, {"x": w}, {"x": other}, {"y": w}, {"y": w}], strict=True
        ):
            port.send(name, WORK, tensors)
        port.finish()
        port.send("c002", WORK, {"y": w})
        port.finish()

    def client(port: Port) -> None:
        names = [list(port.recv().tensors) for _ in range(2)]
        assert names == [["x"], ["y"]]

    play({"server": server} | dict.fromkeys(CLIENTS, client), carrier=carrier)
    assert calls == [["x"], ["x"], ["y"], ["y"]], "x for two, the other x, y for two, and y at a later instant"
    assert carrier.posted[0][1][2] is carrier.posted[1][1][2]
    assert carrier.posted[0][1][0] != carrier.posted[1][1][0], "each has a header of its own"


def test_new_tensors_are_never_taken_for_old_ones_that_had_their_place_in_memory() -> None:
    got: list[float] = []

    def server(port: Port) -> None:
        for value in range(20):
            port.send("c000", WORK, {"x": torch.full((3,), float(value))})
        port.finish()

    def client(port: Port) -> None:
        for _ in range(20):
            got.append(port.recv().tensors["x"][0].item())

    play({"server": server, "c000": client})
    assert got == [float(value) for value in range(20)]


# what is refused


def pair(*others: str, latency_ms: float = 1.0) -> tuple[Port, Port, FactList]:
    """A server and a client (and others who only exist); who carries messages between them is the test."""
    told, links = FactList(), Links(IDEAL | {"latency_ms": latency_ms}, ["server", "c000", *others])
    server, client = (Port(name, RUN, VirtualClock(), links, Alone(), told) for name in ("server", "c000"))
    return server, client, told


def deliver(port: Port, frames: list[bytes]) -> bool:
    message, stamp = decode(frames, RUN)
    return port.deliver(message, stamp, frame_sizes(frames))


def dropped(told: FactList) -> list[tuple[Any, ...]]:
    return [fact[1:] for fact in told.facts if fact[0] == "dropped"]


@pytest.mark.parametrize("after_it_was_taken", [False, True])
def test_a_duplicate_is_refused_and_named(after_it_was_taken: bool) -> None:
    server, client, told = pair()
    server.send("c000", WORK, {"w": torch.zeros(2)}, work_id=1)
    frames = last_posted(server)
    assert deliver(client, frames)
    if after_it_was_taken:
        client.recv()
    assert not deliver(client, frames)
    assert dropped(told) == [("c000", "duplicate", "WORK 1 came again", sum(map(len, frames)), "server", "data", 1)]


def test_an_answer_to_nothing_is_refused_and_named_and_the_right_one_still_taken() -> None:
    server, client, told = pair()
    server.send("c000", WORK, work_id=7)
    server.finish()
    for work_id in (8, 7, 7):
        client.send("server", RESULT, work_id=work_id)
        deliver(server, last_posted(client))
    assert [(drop[1], drop[2]) for drop in dropped(told)] == [
        ("unasked", "RESULT 8 answers nothing"),
        ("unasked", "RESULT 7 answers nothing"),
    ]
    assert server.recv().sequence == 2


def test_an_answer_of_another_kind_is_refused() -> None:
    server, client, told = pair()
    server.send("c000", EVAL)
    server.finish()
    client.send("server", RESULT)
    assert not deliver(server, last_posted(client))
    assert dropped(told)[0][:3] == ("server", "unasked", "RESULT 0 answers nothing")


@pytest.mark.parametrize(
    "flight", [None, [], [1, 2, 3], "flight", [0, 0, 1.0, 10, 0.0, -1.0], [0, 0, 1.0, 10, 5.0, 9.0]]
)
def test_a_stamp_that_cannot_be_is_refused_and_changes_nothing(flight: object) -> None:
    server, client, _ = pair()
    server.send("c000", WORK, work_id=1)
    server.finish()
    client.send("server", RESULT, work_id=1)
    frames = last_posted(client)
    departure_ns, paused_ns, _, quiet_ns = msgpack.unpackb(frames[1])
    with pytest.raises(BadMessage, match="flight") as problem:
        deliver(server, [frames[0], msgpack.packb((departure_ns, paused_ns, flight, quiet_ns)), *frames[2:]])
    claimed = problem.value.message
    assert (claimed.sender, claimed.channel, claimed.sequence) == ("c000", "data", 1), "so that the ledger can name it"
    assert deliver(server, frames), "the question is still open, and the number not yet used"
    assert server.recv().work_id == 1


def test_a_message_from_the_settled_past_is_refused_under_the_virtual_clock() -> None:
    server, client, _ = pair()
    for work_id in (1, 2):
        server.send("c000", WORK, work_id=work_id)
    server.finish()
    client.send("server", RESULT, work_id=1)
    early = last_posted(client)
    with client.busy(5_000_000):
        pass
    client.send("server", RESULT, work_id=1)
    deliver(server, last_posted(client))
    server._inbox._silent["data"].clear()
    server.recv()
    message, stamp = decode(early, RUN)
    message.sequence, message.work_id = 3, 2
    with pytest.raises(BadMessage, match="begins at 1000000 ns, where all before 6000001 ns is settled"):
        server.deliver(message, stamp, (0, 0, 0))


def test_a_void_answer_is_refused_as_that_though_all_before_it_came_is_settled() -> None:
    """c000's work is cancelled before its answer can leave; the other's answer, which comes later, is taken first."""
    server, client, told = pair("c001")
    server.send("c000", WORK, work_id=1)
    server.send("c001", WORK, work_id=2)
    server.finish()
    with client.busy(5_000_000):
        pass
    client.send("server", RESULT, work_id=1)
    void = last_posted(client)
    server.cancel("c000", 1)
    other = Port("c001", RUN, VirtualClock(), client._links, Alone(), told)
    with other.busy(40_000_000):
        pass
    other.send("server", RESULT, work_id=2)
    deliver(server, last_posted(other))
    server._inbox._silent["data"].clear()
    assert server.recv().work_id == 2
    assert deliver(server, void)
    assert [fact[1] for fact in dropped(told)] == ["cancelled"]


# who waits for whom


def test_when_everybody_waits_for_somebody_else_the_run_fails_and_says_who() -> None:
    def server(port: Port) -> None:
        port.send("c000", WORK, work_id=1)
        port.send("c001", WORK, work_id=2)
        port.recv()
        port.recv()

    def silent(port: Port) -> None:
        port.recv()
        port.recv()

    with pytest.raises(RunFailed) as problem:
        play({"server": server, "c000": worker(1), "c001": silent})
    assert problem.value.actor == "c001"
    assert str(problem.value) == (
        "c001: everybody waits for somebody else: c001: waiting for the next message, "
        "server: 0/1 have sent their RESULT, waiting for c001"
    )


def test_a_port_names_eight_of_those_it_waits_for_and_counts_the_others() -> None:
    names = [f"c{number:03d}" for number in range(11)]
    port = Port("server", RUN, VirtualClock(), Links(IDEAL, ["server", *names]), Alone(), FactList())
    for name in names:
        port.expect(name, JOIN)
    shown = ", ".join(names[:8])
    assert port.waits_for() == f"0/11 joined, waiting for {shown} and 3 more"


def test_nothing_is_handed_out_before_everybody_who_owes_an_answer_has_one_in_hand() -> None:
    server, client, _ = pair("c001", latency_ms=0.0)
    for name in ("c000", "c001"):
        server.send(name, WORK, work_id=1)
    server.finish()
    client.send("server", RESULT, work_id=1)
    deliver(server, last_posted(client))
    assert server.next_event_ns() is not None
    assert not server.may_take()
    assert server.waits_for() == "1/2 have sent their RESULT, waiting for c001"


# whole studies


def test_an_answer_that_had_left_before_its_cancellation_waits_for_what_may_share_its_line() -> None:
    """It takes 4 ms to put out; the answer to the next work may be on the line, and delay it, from 2 ms on."""
    slow = IDEAL | {"client": {"uplink_mbps": 8.0, "downlink_mbps": float("inf")}, "latency_ms": 1.0}
    links, told = Links(slow, ["server", "c000"]), FactList()
    server, client = (Port(name, RUN, VirtualClock(), links, Alone(), told) for name in ("server", "c000"))
    server.send("c000", WORK, work_id=1)
    deliver(client, last_posted(server))
    asked = client.recv()
    client.send("server", RESULT, {"u": torch.zeros(1000)}, work_id=asked.work_id)
    answer = last_posted(client)
    server.clock.advance(1000)
    server.cancel("c000", 1)
    server.send("c000", WORK, work_id=2)
    question = last_posted(server)
    deliver(server, answer)
    assert not server.may_take(), "the next answer is owed, and may come in meanwhile"
    deliver(client, question)
    client.recv()
    client.send("server", RESULT, work_id=2)
    deliver(server, last_posted(client))
    assert [server.recv().work_id, server.recv().work_id] == [1, 2]


def test_how_often_is_evaluated_changes_neither_digest_nor_time() -> None:
    often, seldom, never = (
        run_sequentially(Study(validate(description(run__rounds=6, run__eval_every=every)), RUN)) for every in (1, 5, 0)
    )
    for said in ("digest", "trace_digest", "simulated_s"):
        assert often.finished()[said] == seldom.finished()[said] == never.finished()[said]
    rounds = [{fact[1] for fact in told.facts if fact[0] == "evaluations"} for told in (often, seldom, never)]
    assert rounds == [{1, 2, 3, 4, 5, 6}, {5, 6}, set()]
