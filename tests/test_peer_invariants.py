"""What must hold in the record of every run among peers: it does in all kinds of them, and each invariant can fail."""

import sqlite3
from pathlib import Path

import pytest

from pflsim.record.database import Reader
from pflsim.record.invariants import AMONG_PEERS, Facts, checks
from tests.launching import description
from tests.recorded import AMONG, PEERS, links_of, record_of

WORK = "work begins with its step, and its model leaves when it is done"


@pytest.mark.parametrize("kind", PEERS)
def test_every_invariant_holds_in_every_kind_of_run_among_peers(kind: str, tmp_path: Path) -> None:
    tables = description(**(AMONG | PEERS[kind]))
    with record_of(tmp_path / "record.db", tables) as reader:
        found = checks(Facts.read(reader, links_of(tables)))
    assert {check.name: check.violations for check in found} == dict.fromkeys(AMONG_PEERS, ())
    assert not any(check.not_checked for check in found)


SPOILT = {
    "UPDATE steps SET start_ns = start_ns - 1 WHERE round = 2 AND client = 3": "time never runs backwards",
    "UPDATE steps SET round = 5 WHERE round = 4 AND client = 3": "time never runs backwards",
    "UPDATE spans SET start_ns = start_ns + 1 WHERE actor = 'c001' AND what = 'compute'": WORK,
    "UPDATE spans SET end_ns = end_ns + 1000000000 WHERE actor = 'c001' AND what = 'mix' AND round = 2": WORK,
    "UPDATE sent SET departure_ns = departure_ns + 1 WHERE sender = 'c002' AND kind = 'PUSH'": WORK,
    "INSERT INTO spans SELECT actor, what, start_ns + 1, end_ns, round FROM spans WHERE what = 'compute'": (
        "an actor does one thing at a time"
    ),
    "UPDATE received SET arrival_ns = (SELECT departure_ns FROM sent s WHERE s.sender = received.sender AND "
    "s.channel = received.channel AND s.sequence = received.sequence) WHERE kind = 'PUSH'": (
        "every message takes at least 1 ns"
    ),
    "UPDATE received SET arrival_ns = arrival_ns - 3000000 WHERE kind = 'PUSH' AND receiver = 'c004'": (
        "no link carries more than its rate"
    ),
    "INSERT INTO measures VALUES (1, 'c000', 'age of c001, s', -0.5)": "staleness is never negative",
    "UPDATE received SET payload_bytes = payload_bytes - 1 WHERE kind = 'PUSH' AND sequence = 3": (
        "sent = received + lost"
    ),
    "UPDATE sent SET receiver = 'coordinator' WHERE kind = 'PUSH' AND sequence = 1": "no model passes the coordinator",
    "UPDATE received SET sender = 'coordinator', sequence = 99 WHERE kind = 'PUSH' AND "
    "sender = 'c001' AND sequence = 1": ("no model passes the coordinator"),
    "INSERT INTO sent VALUES ('c001', 'coordinator', 'FINISHED', 'control', 99, 0, 8, 40, 5, 0)": (
        "no model passes the coordinator"
    ),
}


@pytest.mark.parametrize("statement", SPOILT)
def test_a_spoilt_record_of_peers_violates_the_invariant_that_names_it(statement: str, tmp_path: Path) -> None:
    assert SPOILT[statement] in broken(statement, "slow links", tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM received WHERE kind = 'PAIRED' AND sender = (SELECT MIN(sender) FROM sent WHERE kind = 'PAIRED')",
        "UPDATE sent SET departure_ns = departure_ns - 1 WHERE kind = 'PAIRED'",
        "DELETE FROM received WHERE kind = 'PAIR' AND sender = 'c001'",
    ],
)
def test_a_pair_without_its_one_answer_is_seen(statement: str, tmp_path: Path) -> None:
    assert "every PAIR is answered once" in broken(statement, "pairs", tmp_path)


def broken(statement: str, kind: str, place: Path) -> list[str]:
    """The invariants that do not hold after `statement`."""
    tables = description(**(AMONG | PEERS[kind]))
    record_of(place / "record.db", tables).close()
    with sqlite3.connect(place / "record.db") as database:
        assert database.execute(statement).rowcount > 0
    with Reader(place / "record.db") as reader:
        return [check.name for check in checks(Facts.read(reader, links_of(tables))) if not check.holds]


def test_a_record_of_peers_without_spans_says_what_could_not_be_checked(tmp_path: Path) -> None:
    tables = description(**(AMONG | PEERS["sync"]))
    record_of(tmp_path / "record.db", tables).close()
    with sqlite3.connect(tmp_path / "record.db") as database:
        database.execute("DELETE FROM spans")
    with Reader(tmp_path / "record.db") as reader:
        found = checks(Facts.read(reader, links_of(tables)))
    assert all(check.holds for check in found)
    assert {check.name for check in found if check.not_checked} == {WORK, "an actor does one thing at a time"}
