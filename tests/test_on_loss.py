"""Runs that go on without who is lost (`run.on_loss = "continue"`): killed clients and hosts, and who never answers."""

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.show import remarks
from tests.accidents import kill
from tests.launching import Launched, description, launcher
from tests.machines import Machines, machines
from tests.test_failures import EVERYBODY, FAILED, accident

pytestmark = pytest.mark.timeout(120)

Launch = Callable[..., Launched]
SCHEDULES: dict[str, dict[str, Any]] = {
    "sync": {"kind": "sync"},
    "deadline": {"kind": "deadline", "deadline_s": 0.5, "minimum": 3},
    "fedbuff": {"kind": "fedbuff", "concurrency": 3, "buffer": 2},
}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`launch(tables)` starts `pflsim run`."""
    yield from launcher(tmp_path)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Machines]:
    """`lab.start(tables, hosts)` starts `pflsim run --listen`, `lab.join(name)` a `pflsim host`."""
    yield from machines(tmp_path)


def goes_on(schedule: str = "sync", **settings: Any) -> dict[str, Any]:
    """A run of 30 short rounds that takes a few seconds, and goes on without who is lost."""
    more = {"run__on_loss": "continue", "run__rounds": 30, "algorithm": {"name": "tests.accidents:Slow"}} | settings
    return description(**{"schedule": SCHEDULES[schedule]} | more)


def summary(run: Launched) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.out / "summary.json").read_text())
    return found


def completed_without(run: Launched, *lost: str) -> dict[str, Any]:
    """The summary of a run that has come to its end and says that it is not repeatable; nothing is left of it."""
    assert run.finish(60) == 0, run.stderr
    assert run.nothing_left()
    assert list(run.private.iterdir()) == []
    found = summary(run)
    assert found["status"] == "done"
    assert found["repeatable"] is False
    assert sorted(found["lost"]) == sorted(lost)
    assert len(found["digest"]) == len(found["trace_digest"]) == 64
    assert found["accuracy"]["clients"] == 4 - len(lost)
    assert f"{4 - len(lost)} of 4 clients to the end: lost {min(lost)} (" in run.stderr + " ".join(remarks(found))
    told = run.rows("events", what="lost")
    assert sorted(row["actor"] for row in told) == sorted(lost)
    last = run.rows("rounds")[-1]["round"]
    stayed = sorted(set(range(4)) - {int(name[1:]) for name in lost})
    assert sorted({row["client"] for row in run.rows("evaluations", round=last)}) == stayed
    return found


@pytest.mark.parametrize(
    "schedule", ["sync", *(pytest.param(one, marks=pytest.mark.slow) for one in list(SCHEDULES)[1:])]
)
def test_a_run_goes_on_without_a_client_that_is_killed(schedule: str, launch: Launch) -> None:
    run = launch(goes_on(schedule))
    moment = random.Random(schedule).randint(1, 8)
    run.wait_for(lambda run: len(run.rows("rounds")) >= moment)
    kill(run.pid_of("c002"))
    found = completed_without(run, "c002")
    assert found["rounds"] == 30
    (told,) = run.rows("events", what="lost")
    assert told["detail"] == "was killed by SIGKILL"
    assert "c002 is lost: was killed by SIGKILL; the run goes on without it" in run.stderr
    since = max(row["round"] for row in run.rows("rounds") if row["end_ns"] <= told["simulated_ns"]) + 1
    later = [json.loads(row["cohort_json"]) for row in run.rows("rounds") if row["round"] > since]
    assert later and not any(2 in cohort for cohort in later), "it is never asked again"


def test_who_is_killed_before_it_has_joined_is_not_waited_for(launch: Launch) -> None:
    run = launch(accident("is stuck joining", run__on_loss="continue", run__rounds=2))
    run.wait_for(lambda run: len(run.left()) == EVERYBODY)
    kill(run.pid_of("c002"))
    completed_without(run, "c002")
    assert [row["detail"] for row in run.rows("events", what="began")] == ["3 clients"]


@pytest.mark.slow
def test_so_it_is_with_who_is_killed_in_an_evaluation_and_with_who_does_not_answer_for_too_long(launch: Launch) -> None:
    run = launch(accident("is stuck evaluating", run__on_loss="continue", run__patience_s=5.0, algorithm__round=2))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 1)
    kill(run.pid_of("c001"))
    completed_without(run, "c001", "c002")
    reasons = {row["actor"]: row["detail"] for row in run.rows("events", what="lost")}
    assert reasons["c001"] == "was killed by SIGKILL"
    assert reasons["c002"].startswith("server has waited ") and reasons["c002"].endswith("waiting for c002")


@pytest.mark.slow
def test_under_the_wall_clock_too(launch: Launch) -> None:
    run = launch(goes_on("deadline", time={"mode": "wall"}, run__rounds=8))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 2)
    kill(run.pid_of("c001"))
    completed_without(run, "c001")


@pytest.mark.slow
def test_clients_that_share_a_process_are_lost_together(launch: Launch) -> None:
    run = launch(goes_on(run__clients_per_process=2))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 2)
    kill(run.pid_of("c002-c003"))
    completed_without(run, "c002", "c003")


def test_a_run_of_which_nobody_is_left_fails_and_says_so(launch: Launch) -> None:
    run = launch(goes_on(run__rounds=1000))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 2)
    for name in ("c000", "c001", "c002", "c003"):
        kill(run.pid_of(name))
    assert run.finish(30) == FAILED
    assert "nobody is left: all 4 clients are lost" in run.stderr
    assert run.nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("who", ["server", "host"])
def test_the_loss_of_the_server_ends_the_run(who: str, launch: Launch) -> None:
    run = launch(goes_on(run__rounds=1000))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 2)
    kill(run.pid_of(who))
    assert run.finish(20) == FAILED
    assert f"pflsim: the run failed: {who}: " in run.stderr
    assert run.nothing_left()


@pytest.mark.slow
def test_an_error_in_a_program_is_no_loss(launch: Launch) -> None:
    """Or a method that is wrong would give a result, of those clients for whom it is not."""
    run = launch(accident("client raises", run__on_loss="continue"))
    assert run.finish(30) == FAILED
    assert "pflsim: the run failed: c002: ended with exit code 1: " in run.stderr
    assert "client_step raised ZeroDivisionError: the client's accident" in run.stderr


def test_a_run_that_has_lost_nobody_is_as_any_other(launch: Launch) -> None:
    run = launch(description(run__on_loss="continue"))
    assert run.finish(60) == 0
    assert "repeatable" not in summary(run) and "lost" not in summary(run)
    assert summary(run)["warnings"] == []


PEERS: dict[str, dict[str, Any]] = {
    "sync, ring": {"schedule": {"kind": "sync"}, "topology": {"name": "ring"}},
    "sync, 4-regular": {"schedule": {"kind": "sync"}, "topology": {"name": "regular", "degree": 4}},
    "deadline": {"schedule": {"kind": "neighbours", "deadline_s": 0.01}, "topology": {"name": "ring"}},
    "asynchronous": {"schedule": {"kind": "asynchronous"}, "topology": {"name": "ring"}},
    "push": {"schedule": {"kind": "push"}, "topology": {"name": "ring"}},
    "epidemic": {"schedule": {"kind": "epidemic", "receivers": 2}, "topology": {"name": "full"}},
    "pairs": {"schedule": {"kind": "pairs"}, "topology": {"name": "ring"}},
}


def among_peers(kind: str, **settings: Any) -> dict[str, Any]:
    """A run of some seconds that goes on without neighbours that are lost."""
    slow = {"devices__flops_per_second": 2e6, "devices__jitter": 0.5, "record__plot": False}
    size = {"run__clients": 8, "run__rounds": 150, "run__on_loss": "continue", "algorithm": {"name": "dfedu"}}
    return description(**PEERS[kind] | slow | size | settings)


def completed_among_peers(run: Launched, *lost: str) -> dict[str, Any]:
    """The summary of a run in which the others have done all their rounds; nothing is left of it."""
    assert run.finish(60) == 0, run.stderr
    assert run.nothing_left()
    found = summary(run)
    assert (found["status"], found["repeatable"], [*found["lost"]]) == ("done", False, [*lost])
    assert found["accuracy"]["clients"] == 8 - len(lost)
    assert found["rounds"] == max(row["round"] for row in run.rows("rounds"))
    told, *others = found["warnings"]
    assert f"{8 - len(lost)} of 8 clients to the end: lost {lost[0]} (" in told
    assert all("took longer than" in other for other in others), "the record holds what must hold"
    assert all(f"{one} is lost: " in run.stderr for one in lost)
    return found


SLOWLY = ("deadline", "push", "epidemic", "pairs")


@pytest.mark.parametrize("kind", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOWLY)) for one in PEERS])
def test_peers_go_on_without_a_neighbour_that_is_killed(kind: str, launch: Launch) -> None:
    run = launch(among_peers(kind))
    run.wait_for(lambda run: len(run.rows("rounds")) >= random.Random(kind).randint(1, 40))
    kill(run.pid_of("c002"))
    assert completed_among_peers(run, "c002")["rounds"] == 150
    assert "c002 is lost: was killed by SIGKILL; the run goes on without it" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync, 4-regular", "pairs"])
def test_so_they_do_without_two_that_share_a_process_over_tcp(kind: str, launch: Launch) -> None:
    run = launch(among_peers(kind, run__clients_per_process=2, run__transport="tcp"))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 5)
    kill(run.pid_of("c002-c003"))
    completed_among_peers(run, "c002", "c003")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync, ring", "asynchronous"])
def test_so_they_do_without_one_that_is_stopped_and_gives_no_sign_of_life(kind: str, launch: Launch) -> None:
    run = launch(among_peers(kind, run__patience_s=5.0))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 5)
    os.kill(run.pid_of("c002"), signal.SIGSTOP)
    completed_among_peers(run, "c002")
    assert "no sign of life of c002; the run goes on without it" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync, ring", "asynchronous", "pairs"])
def test_so_they_do_under_the_wall_clock(kind: str, launch: Launch) -> None:
    run = launch(among_peers(kind, time={"mode": "wall"}, run__rounds=300))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 5)
    kill(run.pid_of("c002"))
    completed_among_peers(run, "c002")


def test_peers_of_whom_one_is_lost_after_the_other_go_on_until_nobody_is_left(launch: Launch) -> None:
    run = launch(among_peers("asynchronous", run__rounds=100_000))
    for lost in range(8):
        run.wait_for(lambda run: len(run.rows("rounds")) >= 2 and len(run.rows("events", what="lost")) == lost)  # noqa: B023
        kill(run.pid_of(f"c{lost:03d}"))
    assert run.finish(30) == FAILED
    assert "nobody is left: all 8 peers are lost" in run.stderr
    assert run.nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("how", ["kill -9 of a host", "kill -9 of a client there", "Ctrl-C at a host"])
def test_a_run_over_hosts_goes_on_without_whom_it_loses(schedule: str, how: str, lab: Machines) -> None:
    run = lab.start(goes_on(schedule, run__rounds=100), 2)
    for name in ("pc1", "pc2"):
        lab.join(name)
    moment = random.Random(schedule + how).randint(1, 20)
    run.wait_for(lambda run: len(run.rows("rounds")) >= moment, within_s=90)
    if how == "kill -9 of a host":
        lab.hosts[1].process.kill()
    elif how == "kill -9 of a client there":
        kill(lab.hosts[1].pid_of("c003"))
    else:
        os.killpg(lab.hosts[1].process.pid, signal.SIGINT)
    found = completed_without(run, *(("c003",) if "client" in how else ("c002", "c003")))
    assert found["rounds"] == 100
    assert lab.hosts[0].finish(20) == 0, lab.hosts[0].said
    if "client" in how:
        assert run.rows("events", what="lost")[0]["detail"] == "was killed by SIGKILL on pc2"
    else:
        assert all("pc2: " in row["detail"] for row in run.rows("events", what="lost"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync, 4-regular", "asynchronous"])
def test_peers_go_on_without_those_of_a_host_that_is_lost(kind: str, lab: Machines) -> None:
    run = lab.start(among_peers(kind, run__rounds=300), 2)
    for name in ("pc1", "pc2"):
        lab.join(name)
    run.wait_for(lambda run: len(run.rows("rounds")) >= 5, within_s=90)
    lab.hosts[1].process.kill()
    found = completed_among_peers(run, "c004", "c005", "c006", "c007")
    assert found["rounds"] == 300
    assert lab.hosts[0].finish(20) == 0, lab.hosts[0].said
