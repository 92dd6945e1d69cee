"""Whom peers wait for, and what a step's time went into: by hand, and to the nanosecond in every kind of run."""

import sqlite3
from pathlib import Path

import pytest

from pflsim.record.critical_path import Part, blamed
from pflsim.record.database import Reader
from pflsim.record.history import History, Period, Span, Transit
from pflsim.record.shares import Shares, shares
from pflsim.record.waiting import (
    Wait,
    WaitedFor,
    most_waited_for_by_peers,
    step_path,
    step_paths,
    waits,
)
from tests.launching import description
from tests.recorded import AMONG, PEERS, links_of, record_of

STEP = Period(1, 0, 700)


def by_hand() -> History:
    """Two peers in one round: c000 computes for 100 ns, c001 is away at first and computes for 450; 20 in between."""
    models = [
        Transit("c000", "c001", "PUSH", 1, 1, 100, 120, 8, 4),
        Transit("c001", "c000", "PUSH", 1, 1, 650, 670, 8, 4),
    ]
    spans = [
        Span("c000", "compute", 0, 100, 1),
        Span("c000", "wait", 100, 670, 1),
        Span("c000", "mix", 670, 700, 1),
        Span("c001", "offline", 0, 200, 1),
        Span("c001", "compute", 200, 650, 1),
        Span("c001", "mix", 650, 660, 1),
    ]
    return History([], spans, models, {"c000": [STEP], "c001": [Period(1, 0, 660)]})


def test_a_step_waits_for_what_its_neighbour_did_since_it_began_to_wait() -> None:
    """What c001 did before is no matter of c000, which computed itself."""
    path = step_path(by_hand(), "c000", STEP)
    assert path.parts == (
        Part("c000", "compute", 0, 100),
        Part("c001", "offline", 100, 200),
        Part("c001", "compute", 200, 650),
        Part("c001", "on the way from it", 650, 670),
        Part("c000", "mix", 670, 700),
    )
    assert str(path) == (
        "step 1 of c000 took 700 ns: waited 570 ns for c001: 450 ns computing, 100 ns offline, "
        "20 ns on the way from it; 100 ns computing; 30 ns mixing"
    )
    assert [tuple(one) for one in blamed([path])] == [("c001", 570, 1)]


def test_a_wait_is_charged_to_the_neighbour_that_ended_it() -> None:
    assert waits(by_hand()) == [Wait("c000", "c001", 1, 570)]
    assert most_waited_for_by_peers(by_hand()) == WaitedFor("c001", 570e-9, 1, 0)
    both = [*by_hand().transits(), Transit("c002", "c000", "PUSH", 1, 1, 100, 400, 8, 4)]
    spans = [span for own in by_hand().spans.values() for span in own]
    later = History([], spans, both, {"c000": [STEP]})
    assert waits(later) == [Wait("c000", "c001", 1, 570)], "what came meanwhile did not end it"


def test_a_wait_that_no_message_ended_was_for_the_deadline_and_under_the_wall_clock_for_the_last_that_came() -> None:
    spans = [Span("c000", "compute", 0, 100, 1), Span("c000", "mix", 680, 700, 1)]
    history = History([], spans, by_hand().transits(), {"c000": [STEP]})
    assert waits(history) == [Wait("c000", "", 1, 580)]
    assert step_path(history, "c000", STEP).parts[1] == Part("c000", "deadline", 100, 680)
    assert "580 ns until its deadline" in str(step_path(history, "c000", STEP))
    assert most_waited_for_by_peers(history) is None
    assert waits(history, is_virtual=False) == [Wait("c000", "c001", 1, 580)]
    real = step_path(history, "c000", STEP, is_virtual=False)
    assert [part.actor for part in real.parts[-3:]] == ["c001", "c000", "c000"]
    assert [part.duration_ns for part in real.parts[-3:]] == [20, 10, 20], "on the way, until it went on, mixing"


def test_shares_of_a_peer_end_with_its_own_last_step() -> None:
    found = {one.actor: one for one in shares(by_hand())}
    assert found["c000"] == Shares("c000", computing_ns=130, sending_ns=20, offline_ns=0, waiting_ns=550)
    assert found["c001"] == Shares("c001", computing_ns=460, sending_ns=0, offline_ns=200, waiting_ns=0)


@pytest.mark.parametrize("kind", PEERS)
def test_the_parts_of_every_step_follow_each_other_and_add_up_to_its_duration_to_the_ns(
    kind: str, tmp_path: Path
) -> None:
    tables = description(**(AMONG | PEERS[kind]))
    with record_of(tmp_path / "record.db", tables) as reader:
        history = History.read(reader)
        told = reader.query("SELECT COUNT(*), SUM(end_ns - start_ns) FROM steps")[0]
    paths = step_paths(history, links_of(tables))
    assert (len(paths), sum(path.duration_ns for path in paths)) == told
    for path in paths:
        assert sum(part.duration_ns for part in path.parts) == path.duration_ns
        bounds = [bound for part in path.parts for bound in (part.start_ns, part.end_ns)]
        assert bounds[1:-1:2] == bounds[2:-1:2]
    waited_ns = sum(wait.waited_ns for wait in waits(history))
    own = sum(part.duration_ns for path in paths for part in path.parts if part.actor == path.owner)
    at_deadlines = sum(wait.waited_ns for wait in waits(history) if not wait.neighbour)
    assert own + waited_ns - at_deadlines == told[1]
    assert bool(at_deadlines) == (kind == "deadline")
    if kind in ("asynchronous", "push", "faults", "stop by time"):
        assert not waited_ns, "nobody waits"


def test_in_step_with_a_straggler_its_neighbours_wait_for_it_and_the_others_for_their_neighbours(
    tmp_path: Path,
) -> None:
    tables = description(**(AMONG | PEERS["sync"]))
    with record_of(tmp_path / "record.db", tables) as reader:
        history = History.read(reader)
        slow = max(history.steps, key=lambda peer: history.spans[peer][0].end_ns)
        most = most_waited_for_by_peers(history)
        paths = step_paths(history)
    assert most is not None and most.actor == slow
    assert blamed(paths)[0].actor == slow
    number = int(slow[1:])
    beside = {f"c{(number + side) % 6:03d}" for side in (-1, 1)}
    assert {wait.peer for wait in waits(history) if wait.neighbour == slow} == beside


def test_without_spans_nobody_can_tell_who_waited(tmp_path: Path) -> None:
    record_of(tmp_path / "record.db", description(**(AMONG | PEERS["sync"]))).close()
    with sqlite3.connect(tmp_path / "record.db") as database:
        database.execute("DELETE FROM spans")
    with Reader(tmp_path / "record.db") as reader:
        assert waits(History.read(reader)) == []
        assert most_waited_for_by_peers(History.read(reader)) is None
