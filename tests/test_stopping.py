"""Runs without rounds that get nowhere, or that a limit ends: they end, and say why; played sequentially."""

from pathlib import Path
from typing import Any

import pytest

from nodes.sequential import FactList, run_sequentially
from pflsim.errors import RunFailed
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description

S = 1_000_000_000
ASYNC = {"kind": "fedasync", "concurrency": 3}
SLOW = {"kind": "constant", "flops_per_second": 2e6, "server_flops_per_second": 1e12}
"""A visit takes 5.4 ms and two transfers."""


def played(schedule: dict[str, Any] = ASYNC, **settings: Any) -> FactList:
    tables = description(**({"schedule": schedule, "devices": SLOW, "run__clients": 5, "run__rounds": 3} | settings))
    return run_sequentially(Study(validate(tables), b"8 bytes."))


def rounds(told: FactList) -> list[tuple[Any, ...]]:
    return [fact for fact in told.facts if fact[0] == "rounds"]


@pytest.mark.parametrize("schedule", [ASYNC, {"kind": "fedbuff", "concurrency": 3, "buffer": 4}])
def test_a_timeout_that_is_shorter_than_any_visit_fails_after_a_hundred_pieces_of_work_a_client(
    schedule: dict[str, Any],
) -> None:
    said = r"server: no answer was taken of 501 pieces of work in a row, up to round 1: 501 of them were not answered"
    with pytest.raises(RunFailed, match=rf"{said} within schedule\.timeout_s = 0\.001"):
        played(schedule | {"timeout_s": 0.001})


def test_uploads_that_are_never_finite_fail_and_the_commonest_reason_is_said() -> None:
    with pytest.raises(
        RunFailed, match=r"500 pieces of work in a row, up to round 1: 500 of them brought uploads that"
    ):
        played(training__step_size=1e9, training__weight_decay=1e9, training__local_steps=20)


def test_answers_that_are_always_too_old_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pflsim.schedule.WithoutRounds.takes", lambda schedule, age: False)
    with pytest.raises(RunFailed, match=r"brought answers older than schedule\.max_staleness = 0"):
        played(ASYNC | {"max_staleness": 0})


def test_windows_that_are_shorter_than_a_visit_fail(tmp_path: Path) -> None:
    file = tmp_path / "there.csv"
    file.write_text("client,from_s,to_s\n" + "".join(f"{client},0,0.004\n" for client in range(5)))
    trace = {"kind": "trace", "file": str(file), "repeat_s": 60.0}
    with pytest.raises(RunFailed, match=r"500 of them were lost, as clients left before they had answered"):
        played(availability=trace)


def test_an_answer_that_is_taken_forgives_all_that_came_to_nothing_before() -> None:
    """Half of all messages are lost, so that work comes to nothing more often than the limit allows in a row."""
    lossy = [{"kind": "lose", "probability": 0.5}]
    told = played(ASYNC | {"timeout_s": 1.0}, fault=lossy, run__rounds=100, run__eval_every=0, run__clients=2)
    assert told.finished()["rounds"] == 100
    assert sum(fact[2] == "cancelled" for fact in told.facts if fact[0] == "events") > 2 * 100


@pytest.mark.parametrize(
    "schedule", [ASYNC | {"timeout_s": 0.001}, {"kind": "fedbuff", "concurrency": 3, "buffer": 900}]
)
def test_the_limit_of_simulated_time_ends_a_round_that_would_not_end(schedule: dict[str, Any]) -> None:
    told = played(schedule, run__stop__simulated_s=0.05)
    assert told.finished()["stopped"] == "0.05 simulated seconds have passed"
    assert [fact[3] for fact in rounds(told)] == [S // 20], "not a nanosecond later"
    assert told.finished()["rounds"] == 1
    assert [fact[2] for fact in told.facts if fact[0] == "evaluations"] == [S // 20] * 10, "two models each"


def test_the_limit_of_simulated_time_holds_while_nobody_is_there(tmp_path: Path) -> None:
    file = tmp_path / "there.csv"
    file.write_text("client,from_s,to_s\n" + "".join(f"{client},3600,7200\n" for client in range(5)))
    told = played(availability={"kind": "trace", "file": str(file)}, run__stop__simulated_s=1.0)
    assert told.finished()["simulated_s"] == 1.0
    assert [fact[5:7] for fact in rounds(told)] == [("[]", 0)]


def test_the_limit_of_bytes_ends_a_round_with_the_message_that_passes_it() -> None:
    told = played(run__stop__bytes=20_000, run__clients=40)
    sizes = [
        fact[7] + fact[8] if fact[0] == "sent" else fact[6] + fact[7]
        for fact in told.facts
        if fact[0] in ("sent", "received") and fact[4] == "data" and fact[1 if fact[0] == "sent" else 2] == "server"
    ]
    assert told.finished()["stopped"] == "20000 bytes have travelled"
    assert sum(sizes[:-1]) < 20_000 <= sum(sizes)
    assert [fact[0] for fact in rounds(told)] == ["rounds"]


@pytest.mark.parametrize("schedule", [ASYNC, {"kind": "fedbuff", "concurrency": 3, "buffer": 4}])
def test_everybody_away_in_a_round_that_only_answers_can_end_is_named(schedule: dict[str, Any]) -> None:
    away = {"kind": "crash", "clients": list(range(5)), "at_round": 1, "until_round": 2, "keeps_state": True}
    said = r"server: faults keep c000, c001, c002, c003, c004 away in round 2, which only answers can end"
    with pytest.raises(RunFailed, match=said):
        played(schedule, fault=[away])
