"""When things go wrong in a run with real processes: who it was is said at once, and nothing of the run is left."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.accidents import kill
from tests.launching import Launched, description, launcher

pytestmark = pytest.mark.timeout(60)

SOON_S = 10.0
EVERYBODY = 7  # the launcher, the host, the server, and four clients
FAILED, INTERRUPTED = 1, 130
Launch = Callable[..., Launched]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`launch(tables)` starts `pflsim run`."""
    yield from launcher(tmp_path)


OWN = "algorithm.name = 'tests.accidents:Accident'"


def accident(how: str = "nothing", **settings: Any) -> dict[str, Any]:
    """Four clients, of which c002 has an accident in its second round."""
    algorithm = {"name": "tests.accidents:Accident", "how": how, "client": 2, "round": 1}
    return description(algorithm=algorithm, **settings)


def endless(**settings: Any) -> dict[str, Any]:
    """A run that goes on until something ends it."""
    return accident(algorithm__pause_s=0.05, run__rounds=100_000, **settings)


def runs(run: Launched) -> bool:
    """Whether some rounds are done."""
    return len(run.rows("rounds")) >= 2


@pytest.mark.parametrize("actor", ["host", "server", "c002"])
def test_a_process_writes_its_stacks_into_its_log_when_it_is_asked_and_goes_on(launch: Launch, actor: str) -> None:
    """c002 is stuck in its work."""
    run = launch(accident("is stuck"))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 1)
    log, pid = run.out / "logs" / f"{actor}.log", run.pid_of(actor)
    asked: list[float] = []

    def is_told(run: Launched) -> bool:
        if not asked or time.monotonic() - asked[-1] > 2:  # it may not have come to its stuck work yet
            os.kill(pid, signal.SIGUSR1)
            asked.append(time.monotonic())
        text = log.read_text()
        return "most recent call first" in text and (actor != "c002" or "in _happen" in text)

    run.wait_for(is_told, within_s=20)
    assert run.pid_of(actor) == pid


def failed(run: Launched, who: str, status: str = "failed") -> str:
    """What it said to the user. Nothing is left but the record, which names the end."""
    assert run.nothing_left()
    assert list(run.private.iterdir()) == [], "the private folder with the sockets is gone"
    assert run.rows("events", what=status) != []
    assert run.out.joinpath("summary.json").exists()
    assert f"pflsim: the run failed: {who}: " in run.stderr
    assert run.stderr.endswith(f"pflsim: what was recorded lies in {run.out}\n")
    return run.stderr


@pytest.mark.parametrize(
    ("how", "who", "said"),
    [
        (
            "client raises",
            "c002",
            f"ended with exit code 1: {OWN}: client_step raised ZeroDivisionError: the client's accident",
        ),
        ("exits", "c002", "ended with exit code 3"),
        (
            "works more",
            "c002",
            "ended with exit code 1: c002: tests.accidents:Accident declared Work(forward_samples=30",
        ),
        ("exits without an error", "c002", "ended with exit code 0 in the middle of its work"),
        ("server exits without an error", "server", "ended with exit code 0 in the middle of its work"),
        (
            "ends its greenlet",
            "c002",
            "ended with exit code 1: RuntimeError: GreenletExit() was raised in the program of c002",
        ),
        ("ends its program", "c002", f"ended with exit code 1: {OWN}: client_step raised SystemExit: 0"),
        (
            "server raises",
            "server",
            f"ended with exit code 1: {OWN}: server_step raised ZeroDivisionError: the server's accident",
        ),
    ],
)
def test_an_accident_in_a_step_ends_the_run_and_names_who_had_it(how: str, who: str, said: str, launch: Launch) -> None:
    run = launch(accident(how))
    assert run.finish(within_s=30) == FAILED
    message = failed(run, who)
    assert f"{who}: {said}" in message
    assert ("ZeroDivisionError" in message) == ("raises" in how)
    assert [row["round"] for row in run.rows("rounds")] == [1], "the round before it is recorded"


@pytest.mark.parametrize("how", ["exits without an error", "ends its greenlet"])
def test_an_early_end_without_an_error_is_named_where_clients_share_a_process(how: str, launch: Launch) -> None:
    run = launch(accident(how, run__clients_per_process=4))
    assert run.finish(within_s=30) == FAILED
    assert "in the middle of its work" in failed(run, "c000-c003") or "program of c002" in run.stderr


def test_an_accident_among_clients_that_share_a_process_names_the_client(launch: Launch) -> None:
    run = launch(accident("client raises", run__clients_per_process=4))
    assert run.finish(within_s=30) == FAILED
    assert "in the program of c002" in failed(run, "c000-c003")


@pytest.mark.parametrize("who", ["c002", "server", "host"])
def test_a_killed_process_ends_the_run_at_once_and_is_named(who: str, launch: Launch) -> None:
    run = launch(endless())
    run.wait_for(runs)
    kill(run.pid_of(who))
    assert run.finish(within_s=SOON_S) == FAILED
    message = failed(run, who)
    assert "was killed by SIGKILL" in message
    assert len(run.rows("rounds")) >= 2


def test_a_client_that_is_killed_while_it_works_is_named_not_the_server_that_waits(launch: Launch) -> None:
    run = launch(accident("is stuck"))
    run.wait_for(lambda run: len(run.rows("rounds")) == 1)
    kill(run.pid_of("c002"))
    assert run.finish(within_s=SOON_S) == FAILED
    assert "c002: was killed by SIGKILL" in failed(run, "c002")


def test_nothing_outlives_a_killed_launcher(launch: Launch) -> None:
    run = launch(endless())
    run.wait_for(runs)
    assert len(run.left()) == EVERYBODY
    kill(run.process.pid)
    assert run.finish(within_s=SOON_S) == -signal.SIGKILL
    assert run.nothing_left(within_s=2.0)
    assert len(run.rows("rounds")) >= 2, "the record is kept"


def test_nothing_outlives_a_launcher_that_is_killed_while_the_host_imports(launch: Launch) -> None:
    run = launch(endless())
    run.wait_for(lambda run: len(run.left()) == 2)
    kill(run.process.pid)
    run.finish(within_s=SOON_S)
    assert run.nothing_left(within_s=2.0)


def press_ctrl_c(run: Launched) -> None:
    """The terminal sends SIGINT to everybody in the foreground process group."""
    os.killpg(run.process.pid, signal.SIGINT)


def interrupt_launcher(run: Launched) -> None:
    os.kill(run.process.pid, signal.SIGINT)


def terminate(run: Launched) -> None:
    os.kill(run.process.pid, signal.SIGTERM)


def hang_up(run: Launched) -> None:
    os.kill(run.process.pid, signal.SIGHUP)


def quit_(run: Launched) -> None:
    os.kill(run.process.pid, signal.SIGQUIT)


def importing(run: Launched) -> bool:
    return len(run.left()) == 2


def joining(run: Launched) -> bool:
    return len(run.left()) == EVERYBODY


def working(run: Launched) -> bool:
    return len(run.rows("rounds")) == 1


def evaluating(run: Launched) -> bool:
    return bool(run.rows("sent", kind="EVAL", round=1))


@pytest.mark.parametrize(
    ("moment", "accident_", "how"),
    [
        (importing, "nothing", press_ctrl_c),
        (importing, "nothing", interrupt_launcher),
        (importing, "nothing", terminate),
        (joining, "is stuck joining", press_ctrl_c),
        (working, "is stuck", interrupt_launcher),
        (working, "is stuck", terminate),
        (working, "is stuck", hang_up),
        (importing, "nothing", hang_up),
        (working, "is stuck", quit_),
        (evaluating, "is stuck evaluating", press_ctrl_c),
    ],
)
def test_an_interrupt_ends_everything_within_a_second_or_two(
    moment: Callable[[Launched], bool], accident_: str, how: Callable[[Launched], None], launch: Launch
) -> None:
    run = launch(accident(accident_))
    run.wait_for(moment)
    how(run)
    assert run.finish(within_s=SOON_S) == INTERRUPTED
    assert run.nothing_left()
    assert list(run.private.iterdir()) == []
    assert "Traceback" not in run.stderr
    assert "pflsim: interrupted" in run.stderr
    if moment is not importing:
        assert run.rows("events", what="interrupted") != []
        assert run.stderr.endswith(f"pflsim: what was recorded lies in {run.out}\n")


def test_a_sigterm_ends_a_background_job_of_a_script_which_ignores_ctrl_c(launch: Launch) -> None:
    run = launch(endless(), before=("sh", "-c", 'trap "" INT; exec "$@"', "sh"))
    run.wait_for(importing)
    terminate(run)
    assert run.finish(within_s=SOON_S) == INTERRUPTED
    assert run.nothing_left()


def test_nohup_lets_a_run_outlive_its_terminal(launch: Launch) -> None:
    run = launch(accident(algorithm__pause_s=0.05, run__rounds=5), before=("sh", "-c", 'trap "" HUP; exec "$@"', "sh"))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 1)
    hang_up(run)
    assert run.finish(within_s=30) == 0


def test_an_impatient_second_ctrl_c_does_not_spoil_the_ending(launch: Launch) -> None:
    run = launch(endless())
    run.wait_for(runs)
    for _ in range(20):
        press_ctrl_c(run)
        time.sleep(0.01)
    assert run.finish(within_s=SOON_S) == INTERRUPTED
    assert run.nothing_left()
    assert list(run.private.iterdir()) == []
    assert json.loads((run.out / "summary.json").read_text())["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment_s", [0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6])
def test_ctrl_c_at_any_moment_leaves_nothing(moment_s: float, launch: Launch) -> None:
    run = launch(accident(run__rounds=10))
    time.sleep(moment_s)
    press_ctrl_c(run)
    assert run.finish(within_s=SOON_S) in (INTERRUPTED, 0), run.stderr
    assert run.nothing_left()
    assert list(run.private.iterdir()) == []
    assert "Traceback" not in run.stderr
    assert not run.out.exists() or run.out.joinpath("summary.json").exists()


# what is no accident, and what takes too long


def test_an_upload_that_is_not_finite_is_rejected_and_its_client_is_as_before_that_work(launch: Launch) -> None:
    run = launch(accident("uploads nan"))
    assert run.finish(within_s=30) == 0
    assert [(row["answers"], row["rejected"]) for row in run.rows("rounds")] == [(4, 0), (3, 1), (4, 0)]
    said = "round 2: the upload of c002 is not finite"
    assert [(row["actor"], row["detail"]) for row in run.rows("events", what="rejected")] == [("c002", said)]
    assert said in run.stderr
    visits = [row["value"].tolist() for row in run.rows("measures", name="visits")]
    assert visits == [[1, 1, 1, 1], [2, 2, 1, 2], [3, 3, 2, 3]], "for c002 that work was never done"


def test_the_largest_number_there_is_is_still_a_number(launch: Launch) -> None:
    run = launch(accident("uploads the largest number", run__rounds=2))
    assert run.finish(within_s=30) == 0
    assert [row["rejected"] for row in run.rows("rounds")] == [0, 0]
    assert run.rows("measures", name="largest", round=2)[0]["value"] > 1e37


def test_whoever_is_stuck_for_longer_than_the_patience_ends_the_run_and_is_named(launch: Launch) -> None:
    run = launch(accident("is stuck", run__patience_s=5.0))
    assert run.finish(within_s=30) == FAILED
    assert re.search(r"has waited \d+ s: 3/4 have sent their RESULT, waiting for c002", failed(run, "server"))


def test_whoever_does_not_join_within_the_patience_ends_the_run_and_is_named(launch: Launch) -> None:
    run = launch(accident("is stuck joining", run__patience_s=5.0))
    assert run.finish(within_s=30) == FAILED
    assert re.search(r"has waited \d+ s: 3/4 joined, waiting for c002", failed(run, "server"))
