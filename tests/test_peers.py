"""Runs without a server, with real processes: the same bits, whoever is killed is named, and no model passes a hub."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodes.sequential import run_sequentially
from pflsim.errors import DescriptionError, RunFailed
from pflsim.spec import validate
from pflsim.study import Study
from tests.accidents import kill
from tests.launching import Launched, description, launcher, run_here
from tests.test_chaos import shuffled
from tests.test_failures import failed
from tests.test_peers_chaos import ENGINES

pytestmark = pytest.mark.timeout(60)

Launch = Callable[..., Launched]
RUN = b"8 bytes."


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`launch(tables)` starts `pflsim run`."""
    yield from launcher(tmp_path)


def peers(engine: str = "sync", *, algorithm: str = "dfedu", **settings: Any) -> dict[str, Any]:
    """Six peers on a ring, one of them ten times slower."""
    base = {"run__clients": 6, "schedule": ENGINES[engine], "topology": {"name": "ring"}}
    return description(**base | {"algorithm": {"name": algorithm}} | settings)


def expected(tables: dict[str, Any]) -> tuple[str, str]:
    finished = run_sequentially(Study(validate(tables), RUN)).finished()
    return finished["digest"], finished["trace_digest"]


@pytest.mark.parametrize("clients_per_process", [1, 4])
@pytest.mark.parametrize("engine", ["sync", "deadline", "asynchronous", "push", "epidemic", "pairs"])
def test_peers_give_the_bits_of_the_sequential_driver(engine: str, clients_per_process: int, tmp_path: Path) -> None:
    tables = peers(engine, run__clients_per_process=clients_per_process)
    result = run_here(tables, tmp_path / "out")
    assert (result.summary["digest"], result.summary["trace_digest"]) == expected(tables)


def test_so_they_do_over_tcp(tmp_path: Path) -> None:
    tables = peers("asynchronous", run__transport="tcp")
    result = run_here(tables, tmp_path / "out")
    assert (result.summary["digest"], result.summary["trace_digest"]) == expected(tables)


def test_in_step_with_neighbours_the_models_are_the_same_under_the_wall_clock(tmp_path: Path) -> None:
    tables = peers(devices__flops_per_second=1e9)
    result = run_here(tables | {"time": {"mode": "wall"}}, tmp_path / "out")
    assert result.summary["digest"] == expected(tables)[0]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sync", "asynchronous"])
def test_peers_that_are_at_work_for_longer_than_the_patience_are_not_taken_for_stuck(
    engine: str, tmp_path: Path
) -> None:
    """Their coordinator hears nothing of them until they have finished, but that they are there."""
    limits = {"run__patience_s": 5.0, "run__rounds": 10_000, "run__eval_every": 0, "run__stop": {"simulated_s": 7.0}}
    tables = peers(engine, devices__flops_per_second=1e7, **limits)
    result = run_here(tables | {"time": {"mode": "wall"}}, tmp_path / "out")
    assert result.summary["status"] == "done"
    assert result.summary["time"]["simulated_s"] >= 7.0


@pytest.mark.parametrize("engine", ["sync", "pairs"])
def test_nothing_but_control_passes_the_coordinator(engine: str, tmp_path: Path) -> None:
    result = run_here(peers(engine), tmp_path / "out")
    passing = [row for row in result.rows("messages") if "coordinator" in (row["sender"], row["receiver"])]
    assert passing
    assert {row["channel"] for row in passing} == {"control"}
    assert sum(row["sent_payload_bytes"] for row in passing) == 0
    assert result.ledger().agrees


def test_an_edge_carries_one_model_each_way_in_each_round(tmp_path: Path) -> None:
    tables = peers()
    result = run_here(tables, tmp_path / "out")
    model_bytes = 4 * Study(validate(tables), RUN).network.layout.dimension
    sent = result.rows("sent", kind="PUSH")
    assert len(sent) == 6 * 2 * tables["run"]["rounds"]
    assert {row["payload_bytes"] for row in sent} == {model_bytes}


@pytest.mark.parametrize("engine", ["sync", "asynchronous", "pairs"])
@pytest.mark.parametrize("who", ["c003", "coordinator"])
def test_a_killed_peer_ends_the_run_at_once_and_is_named_however_many_wait_for_it(
    who: str, engine: str, launch: Launch
) -> None:
    run = launch(peers(engine, topology={"name": "full"}, run__rounds=100_000))
    run.wait_for(lambda run: len(run.rows("rounds")) >= 2)
    kill(run.pid_of(who))
    assert run.finish(10.0) == 1
    assert "was killed by SIGKILL" in failed(run, who)


def test_an_accident_of_a_peer_is_named_though_its_neighbours_miss_it(launch: Launch) -> None:
    run = launch(peers(algorithm="tests.accidents:PeerAccident", topology={"name": "full"}))
    assert run.finish(30.0) == 1
    assert "the peer's accident" in failed(run, "c002")


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        ({"schedule": {"kind": "fedasync", "concurrency": 2}}, "schedule.kind", "needs a server"),
        ({"schedule": {"kind": "sync", "sampling": "uniform", "cohort": 2}}, "schedule.cohort", "neighbours"),
        ({"run__stop": {"accuracy": 0.5}}, "run.stop.accuracy", "simulated_s"),
        ({"schedule": {"kind": "neighbours", "active": 0.0}}, "schedule.active", "above 0"),
        ({"schedule": {"kind": "push", "receivers": 0}}, "schedule.receivers", "at least 1"),
        ({"algorithm": {"name": "dfedu", "eta_r": 50.0}}, "algorithm.eta_r", "below 2"),
        ({"algorithm": {"name": "fedavg"}, "schedule": {"kind": "pairs"}}, "schedule.kind", "without a server"),
    ],
)
def test_what_has_no_meaning_without_a_server_is_refused(settings: dict[str, Any], key: str, said: str) -> None:
    tables = peers()
    for name, value in settings.items():
        tables = description(tables, **{name: value})
    with pytest.raises(DescriptionError, match=said) as refused:
        Study(validate(tables), RUN)
    assert refused.value.key == key


def test_a_method_for_peers_without_a_graph_is_refused() -> None:
    tables = {key: value for key, value in peers().items() if key != "topology"}
    with pytest.raises(DescriptionError, match="needs a graph"):
        Study(validate(tables), RUN)


def test_who_never_stays_long_enough_for_its_work_ends_with_the_run_or_is_named() -> None:
    away = {"availability": {"kind": "markov", "on_s": 0.05, "off_s": 0.02}, "devices__flops_per_second": 1e3}
    told = run_sequentially(Study(validate(peers(run__stop={"simulated_s": 1.0}, **away)), RUN)).finished()
    assert told["rounds"] == 0 and 1.0 <= told["simulated_s"] < 2.0
    with pytest.raises(RunFailed, match="has left 1000 times in a row before its work was done"):
        run_sequentially(Study(validate(peers("pairs", **away)), RUN))


def test_what_comes_after_the_end_is_not_taken_however_much_it_is() -> None:
    """Fast devices and slow links: whole runs of models are under way when everybody has finished."""
    tables = peers("asynchronous", run__rounds=40, links="4g", devices="workstation", topology={"name": "full"})
    found = run_sequentially(Study(validate(tables), RUN)).finished()
    for order in range(2):
        assert shuffled(tables, order)["trace_digest"] == found["trace_digest"]
