"""The mailroom over real sockets: what does not belong there is counted and dropped, and a run survives it."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import torch
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodes.mailroom import Mailroom
from nodes.sequential import FactList, run_sequentially
from pflsim.errors import RunFailed
from pflsim.messages.port import Port
from pflsim.messages.wire import JOIN, RESULT, WORK
from pflsim.record.database import Reader
from pflsim.record.ledger import balance
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from pflsim.timing.links import Links
from tests.carriers import Alone, last_posted
from tests.launching import description, run_here
from tests.proxy import with_proxy

pytestmark = pytest.mark.timeout(60)

RUN, OTHER_RUN = b"this run", b"that run"
CLIENTS = ("c000", "c001", "c002")


class Facts(FactList):
    """The facts of a process, kept."""

    def flush_if_due(self) -> None:
        """Nothing to do."""


class Office:
    """A server's mailroom on a real socket, and connections to it."""

    def __init__(self, patience_s: float = 20.0) -> None:
        self.told, self._context = Facts(), zmq.Context()
        self._connections: list[zmq.Socket[bytes]] = []
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.router_mandatory = True
        self._socket.bind("tcp://127.0.0.1:*")
        self._endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        links = Links("ideal", ["server", "somebody else", *CLIENTS])
        self.mailroom = Mailroom(self._socket, RUN, CLIENTS, self.told, patience_s)
        self.port = Port("server", RUN, VirtualClock(), links, self.mailroom, self.told)

    def connection(self, name: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        socket.routing_id = name.encode()
        socket.connect(self._endpoint)
        self._connections.append(socket)
        return socket

    def dropped(self) -> list[tuple[str, str, str | None]]:
        """Reason, detail and claimed sender of all that was dropped."""
        return [(fact[2], fact[3], fact[5]) for fact in self.told.facts if fact[0] == "dropped"]

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def office() -> Iterator[Office]:
    """A mailroom that is closed with the test."""
    found = Office()
    yield found
    found.close()


def sender(name: str, run_id: bytes = RUN) -> Port:
    """A port whose messages the test takes."""
    return Port(name, run_id, VirtualClock(), Links("ideal", ["server", name]), Alone(), FactList())


def join(name: str, run_id: bytes = RUN, to: str = "server") -> list[bytes]:
    port = sender(name, run_id)
    port.send(to, JOIN, {"w": torch.ones(2)})
    return last_posted(port)


def take_joins(office: Office, *names: str) -> list[str]:
    """Run a server that waits for these to join; who did, in order."""
    joined: list[str] = []

    def program(port: Port) -> None:
        for name in names:
            port.expect(name, JOIN)
        joined.extend(port.recv().sender for _ in names)

    office.mailroom.add(office.port, program)
    office.mailroom.run()
    return joined


def test_what_does_not_belong_to_the_run_is_counted_and_dropped_and_the_next_message_taken(office: Office) -> None:
    good = join("c000")
    stranger, elsewhere = join("somebody else"), join("c000")
    elsewhere[0] = msgpack.packb([*msgpack.unpackb(good[0])[:4], "nobody", *msgpack.unpackb(good[0])[5:]])
    connection = office.connection("c000")
    for frames in (
        [secrets.token_bytes(30)],
        [b""],
        [b"", b"", b""],
        [b"\xc1" * 40, *good[1:]],
        stranger,
        elsewhere,
        join("c000", OTHER_RUN),
        [*good[:2], good[2][:-1]],
        good[:2],
        good,
    ):
        connection.send_multipart(frames)
    assert take_joins(office, "c000") == ["c000"]
    assert office.dropped() == [
        ("malformed", "1 frames, at least a header and a stamp belong to a message", None),
        ("malformed", "1 frames, at least a header and a stamp belong to a message", None),
        ("malformed", "the header is not msgpack (ValueError)", None),
        ("malformed", "the header is not msgpack (FormatError)", None),
        ("malformed", "'somebody else' does not belong to this run", None),
        ("malformed", "'nobody' does not live here", None),
        ("malformed", "it belongs to another run", None),
        ("malformed", "tensor 'w' has 7 bytes, its shape says 8", "c000"),
        ("malformed", "1 tensors are described, 0 came", "c000"),
    ]


def test_the_bytes_of_what_is_dropped_are_those_that_the_socket_gave(office: Office) -> None:
    connection = office.connection("c000")
    connection.send_multipart([bytes(30), bytes(5)])
    connection.send_multipart(join("c000"))
    take_joins(office, "c000")
    assert [fact[4] for fact in office.told.facts if fact[0] == "dropped"] == [35]


def test_nobody_speaks_in_anothers_name(office: Office) -> None:
    liar = office.connection("c001")
    port = sender("c000")
    port.send("server", RESULT, work_id=1)
    liar.send_multipart(last_posted(port))
    liar.send_multipart(join("c001"))
    assert take_joins(office, "c001") == ["c001"]
    assert office.dropped() == [("malformed", "c000 speaks from where it did not join", None)]


def test_who_has_joined_cannot_be_replaced_by_a_second_connection(office: Office) -> None:
    first = office.connection("c000")
    first.send_multipart(join("c000"))

    def program(port: Port) -> None:
        port.expect("c000", JOIN)
        port.recv()
        thief = office.connection("thief")
        thief.send_multipart(join("c000"))
        thief.send_multipart(join("c001"))
        port.expect("c001", JOIN)
        port.recv()
        port.send("c000", WORK, work_id=5)
        port.finish()

    office.mailroom.add(office.port, program)
    office.mailroom.run()
    assert office.dropped() == [("malformed", "c000 speaks from where it did not join", None)]
    assert first.poll(2000), "the work still goes to the first"


def test_a_duplicate_is_counted_and_dropped(office: Office) -> None:
    connection, port = office.connection("c000"), sender("c000")
    port.send("server", JOIN)
    joined = last_posted(port)
    port.send("server", RESULT, work_id=1)
    for frames in (joined, joined, last_posted(port)):
        connection.send_multipart(frames)

    def program(port: Port) -> None:
        port.expect("c000", JOIN)
        port.expect("c000", RESULT, 1)
        assert [port.recv().kind for _ in range(2)] == [JOIN, RESULT]

    office.mailroom.add(office.port, program)
    office.mailroom.run()
    assert office.dropped() == [("duplicate", "JOIN 1 came again", "c000")]


def test_a_message_to_a_client_that_has_gone_names_it(office: Office) -> None:
    connection = office.connection("c000")
    connection.send_multipart(join("c000"))

    def program(port: Port) -> None:
        port.expect("c000", JOIN)
        port.recv()
        connection.close(linger=0)
        for _ in range(200):
            port.send("c000", WORK)
            port.finish()
            office.mailroom._socket.poll(10)

    office.mailroom.add(office.port, program)
    with pytest.raises(RunFailed, match=r"c000: cannot be reached \(Host unreachable\)"):
        office.mailroom.run()


def test_a_message_to_somebody_who_has_not_joined_is_an_error_that_names_it(office: Office) -> None:
    def program(port: Port) -> None:
        port.send("c001", WORK)
        port.finish()

    office.mailroom.add(office.port, program)
    with pytest.raises(RunFailed, match="c001: is sent a message, but has not joined"):
        office.mailroom.run()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_nothing_that_arrives_can_crash_a_mailroom(office: Office, data: st.DataObject) -> None:
    if "c000" not in office.mailroom._routes:
        office.mailroom.add(office.port, lambda port: None)
        office.attacker = office.connection("c000")  # type: ignore[attr-defined]
        office.attacker.send_multipart(join("c000"))  # type: ignore[attr-defined]
        office.mailroom._receive()
    port = sender("c000")
    port.send("server", data.draw(st.sampled_from([JOIN, RESULT])), {"w": torch.ones(2)}, {"a": 1})
    frames = last_posted(port)
    for _ in range(data.draw(st.integers(0, 4))):
        position = data.draw(st.integers(0, len(frames) - 1))
        changed = bytearray(frames[position]) or bytearray(1)
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        frames[position] = bytes(changed)
    office.attacker.send_multipart(frames)  # type: ignore[attr-defined]
    before = len(office.told.facts)
    office.mailroom._receive()
    assert len(office.told.facts) == before + 1 and office.told.facts[-1][0] == "dropped"


# a proxy between the clients and the server of a real run

SMALL = description(run__rounds=3)


def undisturbed() -> tuple[str, str]:
    finished = run_sequentially(Study(validate(SMALL), b"8 bytes.")).finished()
    return finished["digest"], finished["trace_digest"]


def test_the_ledger_names_one_lost_one_doubled_and_one_truncated_message(tmp_path: Path) -> None:
    def mischief(fields: dict[str, Any], frames: list[bytes]) -> list[list[bytes]]:
        if (fields["kind"], fields["round"]) != (RESULT, 2):
            return [frames]
        return {
            "c000": [[*frames[:2], frames[2][:-100]]],
            "c001": [],
            "c002": [frames, frames],
            "c003": [frames],
        }[fields["sender"]]

    with pytest.raises(RunFailed) as problem:
        run_here(description(SMALL, run__patience_s=5.0), tmp_path / "out", with_proxy(mischief))
    waits = "2/4 have sent their RESULT, waiting for c000, c001"
    assert problem.value.actor == "server" and waits in problem.value.reason

    with Reader(tmp_path / "out" / "record.db") as reader:
        ledger = balance(reader)
    assert [(loss.sender, loss.kind, loss.round, loss.reason) for loss in ledger.losses] == [
        ("c000", RESULT, 2, "malformed"),
        ("c001", RESULT, 2, "never arrived"),
    ]
    truncated, lost = ledger.losses
    assert truncated.detail == "tensor 'u' has 236 bytes, its shape says 336"
    assert (truncated.arrived_bytes, lost.arrived_bytes) == (truncated.sent_bytes - 100, 0)
    (doubled,) = ledger.extra_arrivals
    assert (doubled.sender, doubled.reason, doubled.detail) == ("c002", "duplicate", "RESULT 2 came again")
    assert doubled.total_bytes == truncated.sent_bytes
    assert ledger.agrees, "every byte that was sent is received, or lost with a reason"


def test_noise_on_every_connection_changes_nothing_but_the_count_of_what_was_dropped(tmp_path: Path) -> None:
    def mischief(fields: dict[str, Any], frames: list[bytes]) -> list[list[bytes]]:
        noise = [bytes(17)]
        return [frames, frames, noise] if fields["kind"] in (WORK, RESULT) else [frames]

    result = run_here(SMALL, tmp_path / "out", with_proxy(mischief))
    assert (result.summary["digest"], result.summary["trace_digest"]) == undisturbed()
    reasons = [row["reason"] for row in result.rows("dropped")]
    assert (reasons.count("duplicate"), reasons.count("malformed")) == (3 * 4 * 2, 3 * 4 * 2)
    assert result.summary["traffic"]["duplicate_messages"] == 3 * 4 * 2
    assert result.summary["traffic"]["ends_agree"]
