"""What must hold in every record: it does in all kinds of runs, and each invariant sees what breaks it."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pflsim.record.database import Reader
from pflsim.record.invariants import INVARIANTS, Facts, checks
from pflsim.record.link_use import Load, latest
from tests.launching import description
from tests.recorded import KINDS, SMALL, links_of, record_of

EVERY_KIND = KINDS | {
    "cut uploads": {"schedule": {"kind": "deadline", "deadline_s": 0.1, "over": 1.0, "late": "carry"},
                    "availability": {"kind": "diurnal", "duty": 0.5, "period_s": 0.1, "duty_spread": 0.2},
                    "run__rounds": 10,
                    "links": {"client": {"uplink_mbps": 0.1, "downlink_mbps": 5.0},
                              "server": {"uplink_mbps": 10.0, "downlink_mbps": 10.0}, "latency_ms": 3.0}},
}  # fmt: skip


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_invariant_holds_in_every_kind_of_run(kind: str, tmp_path: Path) -> None:
    tables = description(**(SMALL | EVERY_KIND[kind]))
    with record_of(tmp_path / "record.db", tables) as reader:
        found = checks(Facts.read(reader, links_of(tables)))
    assert {check.name: check.violations for check in found} == dict.fromkeys(INVARIANTS, ())
    assert not any(check.not_checked for check in found)


SLOW: dict[str, Any] = {"links": {"client": {"uplink_mbps": 1.0, "downlink_mbps": 1.0},
                                  "server": {"uplink_mbps": 2.0, "downlink_mbps": 2.0}, "latency_ms": 5.0}}  # fmt: skip

SPOILT = {
    "UPDATE rounds SET start_ns = start_ns - 1 WHERE round = 2": "time never runs backwards",
    "UPDATE sent SET departure_ns = 0 WHERE sender = 'c001' AND kind = 'RESULT' AND sequence = 2": (
        "time never runs backwards"
    ),
    "UPDATE spans SET start_ns = start_ns + 1 WHERE actor = 'c001' AND what = 'compute'": (
        "completion = dispatch + duration"
    ),
    "UPDATE sent SET departure_ns = departure_ns + 1 WHERE sender = 'c002' AND kind = 'RESULT'": (
        "completion = dispatch + duration"
    ),
    "INSERT INTO spans SELECT actor, what, start_ns + 1, end_ns + 1, round FROM spans WHERE actor = 'c003'": (
        "an actor does one thing at a time"
    ),
    "UPDATE received SET arrival_ns = (SELECT departure_ns FROM sent s WHERE s.sender = received.sender AND "
    "s.channel = received.channel AND s.sequence = received.sequence) WHERE kind = 'WORK'": (
        "every message takes at least 1 ns"
    ),
    "UPDATE received SET arrival_ns = arrival_ns - 50000 WHERE kind = 'RESULT' AND sequence = 1": (
        "no link carries more than its rate"
    ),
    "INSERT INTO measures VALUES (1, 'c000', 'age', -1)": "staleness is never negative",
    "UPDATE received SET payload_bytes = payload_bytes - 1 WHERE kind = 'WORK' AND sequence = 3": (
        "sent = received + lost"
    ),
    "DELETE FROM sent WHERE kind = 'WORK' AND receiver = 'c001' AND round = 3": "every WORK is answered at most once",
}


@pytest.mark.parametrize("statement", SPOILT)
def test_a_spoilt_record_violates_the_invariant_that_names_it(statement: str, tmp_path: Path) -> None:
    tables = description(**SLOW)
    record_of(tmp_path / "record.db", tables).close()
    with sqlite3.connect(tmp_path / "record.db") as database:
        assert database.execute(statement).rowcount > 0
    with Reader(tmp_path / "record.db") as reader:
        broken = [check.name for check in checks(Facts.read(reader, links_of(tables))) if not check.holds]
    assert SPOILT[statement] in broken


def test_a_record_without_spans_says_what_could_not_be_checked(tmp_path: Path) -> None:
    record_of(tmp_path / "record.db", description()).close()
    with sqlite3.connect(tmp_path / "record.db") as database:
        database.execute("DELETE FROM spans")
    with Reader(tmp_path / "record.db") as reader:
        found = checks(Facts.read(reader, links_of(description())))
    assert all(check.holds for check in found)
    assert {check.name for check in found if check.not_checked} == {
        "completion = dispatch + duration",
        "an actor does one thing at a time",
    }


def test_a_link_that_is_full_to_the_last_byte_carries_it_and_one_byte_more_is_late() -> None:
    fits = [Load(0, 300, 100), Load(0, 300, 100), Load(50, 100, 50), Load(250, 300, 50)]
    assert latest(fits, 1.0) is None
    late = latest([*fits, Load(0, 300, 10)], 1.0)
    assert late is not None and late[1] == pytest.approx(10.0)


def test_no_interval_may_be_overrun_even_if_the_whole_is_not_full() -> None:
    late = latest([Load(0, 1000, 10), Load(500, 520, 15), Load(505, 520, 15)], 1.0)
    assert late is not None and late[0].until_ns == 520 and late[1] == pytest.approx(10.0)


def test_late_times_which_no_float_holds_are_swept_to_the_nanosecond() -> None:
    late_ns = 2**53 + 1  # 104 days; as a float it is a nanosecond earlier
    loads = [Load(late_ns, late_ns + 300, 100), Load(late_ns + 50, late_ns + 100, 50)]
    assert latest(loads, 1.0) is None
    late = latest([*loads, Load(late_ns, late_ns + 300, 160)], 1.0)
    assert late is not None and late[1] == pytest.approx(10.0)


def test_a_link_that_is_idle_between_loads_keeps_no_time_of_the_earlier_ones() -> None:
    late = latest([Load(0, 10, 10), Load(100, 110, 10), Load(200, 210, 15)], 1.0)
    assert late is not None and late[0].until_ns == 210 and late[1] == pytest.approx(5.0)
