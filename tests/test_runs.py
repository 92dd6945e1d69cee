"""Runs with real processes and sockets: the same bits wherever, whenever and however often, and an honest summary."""

import multiprocessing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nodes.sequential import run_sequentially
from pflsim.record.result import Result
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description, run_here
from tests.test_conformance import METHODS

pytestmark = pytest.mark.timeout(60)

CLIENTS = 7
DIGITS = description(
    run__clients=CLIENTS,
    data={"name": "digits", "partition": {"name": "shards", "classes": 3}},
    schedule={"sampling": "uniform", "cohort": 5},
    devices__stragglers=2,
)
SYNTHETIC = description(links="ideal")


def in_one_process(tables: dict[str, Any]) -> tuple[str, str]:
    """The digests that the sequential driver says."""
    finished = run_sequentially(Study(validate(tables), b"8 bytes.")).finished()
    return finished["digest"], finished["trace_digest"]


@cache
def expected(method: str) -> tuple[str, str]:
    return in_one_process(description(DIGITS, algorithm__name=method))


def digests(result: Result) -> tuple[str, str]:
    """The digests of a run whose ends agree about every byte."""
    assert result.summary["status"] == "done"
    assert result.summary["traffic"]["ends_agree"]
    assert result.ledger().named() == []
    return result.summary["digest"], result.summary["trace_digest"]


@pytest.mark.parametrize("clients_per_process", [1, 3, CLIENTS])
@pytest.mark.parametrize("method", METHODS)
def test_e62_processes_give_the_bits_of_the_sequential_driver(
    method: str, clients_per_process: int, tmp_path: Path
) -> None:
    tables = description(DIGITS, algorithm__name=method, run__clients_per_process=clients_per_process)
    result = run_here(tables, tmp_path / "out")
    assert digests(result) == expected(method)
    assert result.summary["memory"]["processes"] == 2 + -(-CLIENTS // clients_per_process)


def test_methods_and_seeds_differ_in_their_digests() -> None:
    assert len({expected(method)[0] for method in METHODS}) == len(METHODS)
    for seed in ("data", "init", "train"):
        changed = in_one_process(description(DIGITS, run__seed={"data": 1, "init": 1, "train": 1} | {seed: 2}))
        assert changed[0] != expected("fedavg")[0], seed


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("clients_per_process", [1, 3, 40])
def test_forty_clients_give_the_same_bits_however_they_are_packed(clients_per_process: int, tmp_path: Path) -> None:
    tables = description(DIGITS, run__clients=40, schedule={}, algorithm__name="fedu", algorithm__eta_r=0.05)
    packed = description(tables, run__clients_per_process=clients_per_process)
    assert digests(run_here(packed, tmp_path / "out")) == in_one_process(tables)


def test_a_network_with_hidden_layers_gives_the_same_bits(tmp_path: Path) -> None:
    tables = description(
        DIGITS, model={"name": "dnn", "hidden": [33]}, run__clients_per_process=4, data__validation=0.2
    )
    assert digests(run_here(tables, tmp_path / "out")) == in_one_process(tables)


def test_tcp_gives_the_bits_of_ipc(tmp_path: Path) -> None:
    result = run_here(description(DIGITS, run__transport="tcp"), tmp_path / "out")
    assert digests(result) == expected("fedavg")


def test_a_busy_machine_gives_the_same_bits(tmp_path: Path) -> None:
    busy = [multiprocessing.get_context("spawn").Process(target=_count_forever, daemon=True) for _ in range(3)]
    for process in busy:
        process.start()
    try:
        result = run_here(description(DIGITS, run__clients_per_process=2), tmp_path / "out")
    finally:
        for process in busy:
            process.kill()
            process.join()
    assert digests(result) == expected("fedavg")


def _count_forever() -> None:
    number = 0
    while True:
        number += 1


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_fresh_interpreters_give_the_bits_of_forked_ones(tmp_path: Path) -> None:
    tables = description(SYNTHETIC, run__clients_per_process=2)
    result = run_here(description(tables, run__start="spawn"), tmp_path / "out")
    assert digests(result) == in_one_process(tables)


def test_real_time_gives_the_digest_of_simulated_time(tmp_path: Path) -> None:
    result = run_here(description(SYNTHETIC, time__mode="wall", run__rounds=5), tmp_path / "out")
    assert digests(result)[0] == in_one_process(description(SYNTHETIC, run__rounds=5))[0]
    assert result.summary["mode"] == "wall"


SYNCHRONOUS: dict[str, dict[str, Any]] = {
    "a cohort": {"algorithm": {"name": "scaffold"}, "schedule": {"sampling": "uniform", "cohort": 3}},
    "personal models": {"algorithm": {"name": "stratified"}, "run__clients_per_process": 2},
    "fresh losses": {
        "schedule": {"cohort": 2, "sampling": {"kind": "power-of-choice", "candidates": 4, "fresh": True}}
    },
}


@pytest.mark.parametrize("kind", SYNCHRONOUS)
def test_synchronous_rounds_give_the_same_digest_in_real_and_in_simulated_time(kind: str, tmp_path: Path) -> None:
    tables = description(links="lan", run__rounds=4, data__partition={"name": "shards", "classes": 1})
    tables = description(tables, **SYNCHRONOUS[kind])
    ran = {mode: run_here(description(tables, time__mode=mode), tmp_path / mode) for mode in ("virtual", "wall")}
    assert digests(ran["wall"])[0] == digests(ran["virtual"])[0]
    cohorts = [[row["cohort_json"] for row in result.rows("rounds")] for result in ran.values()]
    assert cohorts[0] == cohorts[1]


def test_real_time_really_passes(tmp_path: Path) -> None:
    """Two rounds of 0.2 s down, 0.1 s of work for the slower client, and 0.2 s up; evaluation is free."""
    links = {
        "client": {"uplink_mbps": 1000, "downlink_mbps": 1000},
        "server": {"uplink_mbps": 1000, "downlink_mbps": 1000},
        "latency_ms": 200,
    }
    result = run_here(description(SYNTHETIC, links=links, time__mode="wall", run__rounds=2), tmp_path / "out")
    simulated_s = result.summary["time"]["simulated_s"]
    began_s = next(row["wall_s"] for row in result.rows("events", what="began"))
    finished_s = next(row["wall_s"] for row in result.rows("events", what="finished"))
    assert simulated_s > 0.8
    assert finished_s - began_s > 0.8
    assert digests(result)[0] == in_one_process(description(SYNTHETIC, links=links, run__rounds=2))[0]


def test_the_summary_says_what_the_run_cost(tmp_path: Path) -> None:
    result = run_here(description(DIGITS, run__clients_per_process=4), tmp_path / "out")
    summary = result.summary
    d = summary["parameters"]
    assert (d, summary["clients"], summary["rounds"], summary["mode"]) == (650, CLIENTS, 3, "virtual")
    assert summary["memory"]["peak_pss_bytes"] > 20_000_000
    assert summary["time"]["cpu_s"] > 0.01
    assert 0 < summary["time"]["setup_s"] < summary["time"]["wall_s"]
    assert summary["time"]["simulated_s"] > 0
    traffic = summary["traffic"]
    assert traffic["messages"] == 2 * 3 * 5
    assert traffic["payload_bytes_up"] == traffic["payload_bytes_down"] == 3 * 5 * 4 * d
    assert traffic["lost_messages"] == traffic["duplicate_messages"] == 0
    assert len(result.rows("rounds")) == 3
    assert len(result.rows("evaluations", model="global")) == 3 * CLIENTS
    assert not list((tmp_path / "out").glob("record.db-*"))
    assert (tmp_path / "out" / "run.toml").exists()


ENGINES: dict[str, dict[str, Any]] = {
    "deadline": {"kind": "deadline", "deadline_s": 0.3, "cohort": 5, "late": "carry"},
    "fedasync": {"kind": "fedasync", "concurrency": 4},
    "fedbuff": {"kind": "fedbuff", "concurrency": 5, "buffer": 3},
}


@pytest.mark.parametrize("clients_per_process", [1, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_barrier_too_processes_give_the_bits_of_the_sequential_driver(
    engine: str, clients_per_process: int, tmp_path: Path
) -> None:
    tables = description(DIGITS, schedule=ENGINES[engine], devices__flops_per_second=2e6, run__rounds=4)
    packed = description(tables, run__clients_per_process=clients_per_process)
    assert digests(run_here(packed, tmp_path / "run")) == in_one_process(tables)


def test_under_the_wall_clock_cancelled_work_really_stops(tmp_path: Path) -> None:
    """The straggler's work would take some 15 s; each round cancels it, evaluates it, and asks it again."""
    device = {"kind": "bimodal", "flops_per_second": 1e6, "stragglers": 1, "slowdown": 40.0}
    tables = description(
        time__mode="wall",
        links="ideal",
        schedule={"kind": "deadline", "deadline_s": 0.4, "over": 1.0, "late": "cancel"},
        devices=device | {"server_flops_per_second": 1e12},
        run__rounds=3,
        run__eval_every=1,
    )
    result = run_here(tables, tmp_path / "out")
    assert result.summary["time"]["simulated_s"] < 5
    assert [row["answers"] for row in result.rows("rounds")] == [3, 3, 3]
    assert {row["cohort_json"] for row in result.rows("rounds")} == {"[0, 1, 2, 3]"}
    cancelled = [row["actor"] for row in result.rows("events", what="cancelled")]
    assert len(cancelled) == 3 and len(set(cancelled)) == 1
    assert result.ledger().agrees
