"""The bench compares like with like: floors and runs make the same model, and its table says what was measured."""

import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from launch.bench.floors import FLOORS
from launch.bench.measure import Measured
from launch.bench.simulated import told
from launch.bench.table import Figures
from launch.bench.workloads import EACH, PACKED, PLAIN, SHARED, Target, workloads
from nodes.programs import program_of
from nodes.sequential import FactList, Sequential
from pflsim.messages.port import Port
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock


def study_of(name: str) -> Study:
    torch.set_num_threads(1)  # a forked floor would wait for ever for threads that the fork has not copied
    return Study(validate(workloads(quick=True)[name].tables), b"12345678")


def model_of_a_run(study: Study) -> torch.Tensor:
    """The server's final model, from the sequential driver, whose bits are those of any run."""
    told, carrier, ports = FactList(), Sequential(study.run_id), {}
    for name in ("server", *study.names):
        ports[name] = Port(name, study.run_id, VirtualClock(), study.links, carrier, told)
        carrier.add(ports[name], program_of(study, name))
    carrier.run()
    model: torch.Tensor = ports["server"].state.all["x"]
    return model


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4"])
@pytest.mark.parametrize("floor", [PLAIN, SHARED])
def test_a_floor_makes_the_model_that_a_run_makes(name: str, floor: str) -> None:
    model, ended = FLOORS[floor][name](study_of(name))
    assert len(ended) == workloads(quick=True)[name].tables["run"]["rounds"]
    run = model_of_a_run(study_of(name))
    assert not torch.equal(run, study_of(name).initial)
    assert (model - run).abs().max() <= 1e-5


def test_a_ratio_is_the_median_over_turns_and_not_a_ratio_of_medians() -> None:
    figures = Figures(workloads()["W1"])
    figures.floors[PLAIN] = [1.0, 10.0, 5.0]
    figures.runs[EACH] = [Measured(rate, 2.0, 3.0, 4.0) for rate in (4.0, 20.0, 15.0)]
    assert figures.ratio(EACH, PLAIN) == 3.0


@pytest.mark.parametrize(
    ("target", "met", "missed"),
    [(Target(EACH, PLAIN, 4.0), 4.0, 3.9), (Target(EACH, "first_round_s", 3.0), 3.0, 3.1)],
)
def test_rates_have_a_least_value_and_costs_a_greatest(target: Target, met: float, missed: float) -> None:
    assert target.met(met)
    assert not target.met(missed)


def test_what_simulated_time_costs_and_how_well_real_time_keeps_to_it_is_told_beside_what_is_wanted() -> None:
    assert told(1.149, 0.699, 0.0512) == [
        "ten simulated hours, in real time                1.15 x  (≤ 1.15 x)  met",
        "FedAsync's updates a second                      0.70 x  (≥ 0.70 x)  MISSED",
        "rounds in real time, against simulated ones   5.1 % off  (≤ 5 %)  MISSED",
    ]
    assert told(1.0, 0.7, 0.05)[2].endswith("5.0 % off  (≤ 5 %)  met")


def test_a_client_of_the_learning_workloads_has_exactly_600_training_samples() -> None:
    tables: dict[str, Any] = workloads()["W4"].tables
    tables["run"]["clients"], tables["data"]["features"] = 10, 2
    sizes = Study(validate(tables), b"12345678").federation.sizes
    assert sizes.tolist() == [600] * 10


@pytest.mark.timeout(180)
def test_the_bench_measures_a_workload_and_writes_all_figures(tmp_path: Any) -> None:
    figures = tmp_path / "bench.json"
    command = [sys.executable, "-m", "launch.bench", "W1", "--quick", "--repeat", "1", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(≥ 4)" in done.stdout
    measured = json.loads(figures.read_text())["workloads"]["W1"]
    assert set(measured["runs"]) == {EACH, PACKED}
    assert measured["peak_pss_bytes"][EACH] > 1e7
    assert measured["runs"][EACH][0]["first_round_s"] < measured["runs"][EACH][0]["wall_s"]
