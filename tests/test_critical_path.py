"""What a round's time went into: by hand, and to the nanosecond in every kind of run."""

from pathlib import Path

import pytest

from pflsim.record.accuracy import Accuracy, Point, time_to_target
from pflsim.record.classes import age_histogram, ages, by_class
from pflsim.record.critical_path import Part, blamed, critical_path, critical_paths
from pflsim.record.durations import duration
from pflsim.record.history import History, Period, Span, Transit
from pflsim.record.shares import Shares, covered_ns, shares
from tests.launching import description
from tests.recorded import KINDS, SMALL, links_of, record_of

ROUND = Period(1, 100, 1000)


def by_hand() -> History:
    """Two clients in one round: c000 is fast, c001 is away at first, computes for 500 ns and needs 120 to send."""
    work = [
        Transit("server", name, "WORK", 1, 1, 100, arrival, 8, 4) for name, arrival in (("c000", 120), ("c001", 150))
    ]
    results = [
        Transit("c000", "server", "RESULT", 1, 1, 220, 300, 8, 4),
        Transit("c001", "server", "RESULT", 1, 1, 850, 970, 8, 4),
    ]
    spans = [
        Span("c000", "compute", 120, 220, 1),
        Span("c001", "offline", 150, 350, 1),
        Span("c001", "compute", 350, 850, 1),
        Span("server", "wait", 100, 300, 1),
        Span("server", "wait", 300, 970, 1),
        Span("server", "aggregate", 970, 1000, 1),
    ]
    return History([ROUND], spans, work + results)


def test_the_critical_path_goes_back_from_the_last_answer_to_the_start_of_the_round() -> None:
    path = critical_path(by_hand(), ROUND)
    assert path.parts == (
        Part("c001", "on the way to it", 100, 150),
        Part("c001", "offline", 150, 350),
        Part("c001", "compute", 350, 850),
        Part("c001", "on the way from it", 850, 970),
        Part("server", "aggregate", 970, 1000),
    )
    assert str(path) == (
        "round 1 took 900 ns: waited 870 ns for c001: 500 ns computing, 200 ns offline, 120 ns on the way from it, "
        "50 ns on the way to it; 30 ns aggregating"
    )
    assert [tuple(one) for one in blamed([path])] == [("c001", 870, 1), ("server", 30, 0)]


def test_a_round_that_its_deadline_ends_waited_for_the_deadline_alone() -> None:
    history = by_hand()
    whole = critical_path(history, Period(1, 100, 500), "deadline")
    assert whole.parts == (Part("server", "deadline", 100, 500),)
    assert str(whole) == "round 1 took 400 ns: 400 ns until the deadline"


def test_a_shared_link_is_told_apart_from_the_message_s_own_bytes(tmp_path: Path) -> None:
    tables = description(
        run__rounds=1, run__clients=4, links={"client": {"uplink_mbps": 100.0, "downlink_mbps": 100.0},
        "server": {"uplink_mbps": 10.0, "downlink_mbps": 1000.0}, "latency_ms": 1.0},
    )  # fmt: skip
    with record_of(tmp_path / "record.db", tables) as reader:
        history = History.read(reader)
    path = critical_path(history, history.rounds[0], links=links_of(tables))
    parts = {part.what: part.duration_ns for part in path.parts[:3]}
    assert list(parts) == ["latency", "on the server's uplink", "waiting for the server's uplink"]
    assert parts["latency"] == 1_000_000
    # Four equal downloads share the server's uplink, so that each takes four times as long as it would alone.
    assert parts["waiting for the server's uplink"] == pytest.approx(3 * parts["on the server's uplink"], rel=0.001)


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_every_round_follow_each_other_and_add_up_to_its_duration_to_the_ns(
    kind: str, tmp_path: Path
) -> None:
    tables = description(**(SMALL | KINDS[kind]))
    with record_of(tmp_path / "record.db", tables) as reader:
        history = History.read(reader)
    schedule = kind if kind in ("deadline", "fedasync", "fedbuff") else "sync"
    for links in (None, links_of(tables)):
        paths = critical_paths(history, schedule, links)
        assert len(paths) == tables["run"]["rounds"]
        for path in paths:
            assert sum(part.duration_ns for part in path.parts) == path.period.end_ns - path.period.start_ns
            bounds = [bound for part in path.parts for bound in (part.start_ns, part.end_ns)]
            assert [bounds[0], bounds[-1]] == [path.period.start_ns, path.period.end_ns]
            assert bounds[1:-1:2] == bounds[2:-1:2]
        if kind != "deadline":
            assert all(part.what != "wait" for path in paths for part in path.parts if part.actor != "server")


def test_shares_of_an_actor_add_up_to_the_run() -> None:
    found = {one.actor: one for one in shares(by_hand())}
    assert found["c001"] == Shares("c001", computing_ns=500, sending_ns=120, offline_ns=200, waiting_ns=180)
    assert found["server"] == Shares("server", computing_ns=30, sending_ns=50, offline_ns=0, waiting_ns=920)
    assert covered_ns([(0, 10), (5, 20), (30, 50)], 40) == 30


def test_ages_are_recorded_as_the_versions_between_work_and_answer(tmp_path: Path) -> None:
    tables = description(run__clients=4, run__rounds=3, schedule={"kind": "fedasync", "concurrency": 4})
    with record_of(tmp_path / "record.db", tables) as reader:
        histogram, old = age_histogram(reader), ages(reader)
        answers = reader.query("SELECT COUNT(*) FROM received WHERE kind = 'RESULT'")[0][0]
    assert sum(histogram.values()) == answers == 12
    assert min(histogram) == 0 and max(histogram) >= 3
    assert sum(map(len, old.values())) == 12


def test_rounds_have_no_ages(tmp_path: Path) -> None:
    with record_of(tmp_path / "record.db", description()) as reader:
        assert age_histogram(reader) == {}


def test_slow_and_fast_clients_are_summed_up_apart(tmp_path: Path) -> None:
    tables = description(run__rounds=2)
    with record_of(tmp_path / "record.db", tables) as reader:
        found = by_class(reader, {"c000": "slow", "c001": "fast", "c002": "fast", "c003": "fast"})
        scores = reader.query(
            "SELECT correct, total FROM evaluations WHERE round = 2 AND client = 0 AND model = 'global'"
        )
    assert [(one.name, one.clients, one.visits, one.answers) for one in found] == [("fast", 3, 6, 6), ("slow", 1, 2, 2)]
    assert found[1].accuracy is not None and found[1].accuracy.weighted == scores[0][0] / scores[0][1]


def point(simulated_s: float, accuracy: float) -> Point:
    return Point(1, simulated_s, 0, Accuracy(accuracy, 0, accuracy, 0, accuracy, accuracy, 0, 1, 0))


def test_a_target_counts_from_the_first_crossing_that_holds_for_three_evaluations() -> None:
    course = [0.5, 0.9, 0.8, 0.9, 0.95, 0.9, 0.7]
    points = [point(10.0 * index, accuracy) for index, accuracy in enumerate(course)]
    assert time_to_target(points, 0.9).reached_s == 30.0
    assert str(time_to_target(points, 0.9)) == "30.0 s"


def test_a_target_that_was_not_held_is_censored_at_the_budget_and_no_number() -> None:
    points = [point(10.0 * index, accuracy) for index, accuracy in enumerate([0.5, 0.9, 0.8, 0.9, 0.95])]
    found = time_to_target(points, 0.9)
    assert found.is_censored and found.reached_s is None
    assert str(found) == "> 40.0 s"
    assert str(time_to_target([], 0.9)) == "> 0 ns"


def test_durations_have_three_digits_and_a_unit() -> None:
    assert [duration(ns) for ns in (13, 2_500, 3_900_000, 41_200_000_000, 9 * 10**12)] == [
        "13 ns",
        "2.50 µs",
        "3.90 ms",
        "41.2 s",
        "2.50 h",
    ]
