"""Centralised training: it is SGD on everybody's data, tested on everybody's own test part, and the record says so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from launch.comparison import run_all
from nodes.sequential import run_sequentially
from pflsim.algorithms.centralised import Centralised
from pflsim.conformance.rounds import run
from pflsim.federation import Answer, Round
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description
from tests.problems import least_squares

DIGITS: dict[str, Any] = {
    "run__clients": 5,
    "data": {"name": "digits", "partition": {"name": "shards", "classes": 3}},
}


def study(method: str, **settings: Any) -> Study:
    tables = description(algorithm={"name": method}, **(DIGITS | settings))
    return Study(validate(tables), b"8 bytes.")


def test_all_training_data_are_moved_to_the_first_client_and_test_parts_stay_as_they_are() -> None:
    apart, together = study("fedavg"), study("centralised")
    parts, pooled = apart.data.partition.parts, together.data.partition.parts
    assert sorted(pooled[0].train) == sorted(np.concatenate([part.train for part in parts]))
    assert [len(part.train) for part in pooled[1:]] == [0] * 4
    assert all(np.array_equal(a.test, b.test) for a, b in zip(parts, pooled, strict=True))
    assert "data leaves the clients: all training data lie at the first of them" in together.warnings
    assert not any("data leaves" in warning for warning in apart.warnings)


def test_a_partition_that_is_pooled_already_stays() -> None:
    pooled = {"name": "pooled", "of": {"name": "shards", "classes": 3}}
    named = study("centralised", data={"name": "digits", "partition": pooled})
    assert named.data.partition.digest == study("centralised").data.partition.digest


@pytest.mark.parametrize(("length", "steps"), [({"local_steps": 3}, 3 * 4), ({"local_epochs": 2}, 2 * 9)])
def test_it_takes_as_many_passes_as_each_client_or_as_many_steps_as_all_together(
    length: dict[str, int], steps: int
) -> None:
    problem = least_squares([33, 1, 1, 1], **({"local_steps": None} | length))  # batches of 4: 9 in a pass
    ran = run(Centralised(), problem, 1)
    expected = problem.new_task(0, 0, 0).sgd(problem.federation.initial, steps=steps)
    torch.testing.assert_close(ran.all["x"], expected)
    assert ran.visits == [1, 0, 0, 0]


def test_answers_of_clients_without_data_change_nothing() -> None:
    problem = least_squares()
    x, this = problem.federation.initial, Round(0, (0, 1), problem.federation, 0.05)
    trained, empty = Answer(0, {"w": x + 1}, {"x": x}, 0, 9), Answer(1, {"w": x + 5}, {"x": x}, 0, 0)
    method = Centralised()
    assert torch.equal(method.server_step({"x": x}, [trained, empty], this)["x"], x + 1)
    assert torch.equal(method.server_arrival({"x": x}, empty, 1.0, this)["x"], x)
    assert torch.equal(method.server_buffer({"x": x}, [empty, trained], [1.0, 1.0], this)["x"], x + 1)


def test_only_the_first_client_works() -> None:
    told = run_sequentially(study("centralised", run__rounds=2))
    assert {fact[1] for fact in told.facts if fact[0] == "spans" and fact[2] == "compute"} == {"c000"}


def test_it_runs_beside_a_federated_method_on_the_same_description(tmp_path: Path) -> None:
    tables = description(algorithm={"name": "fedu"}, beside=[{"name": "centralised"}], **DIGITS)
    pooled, fedu = run_all(tables, tmp_path / "out", quiet=True)
    assert any("data leaves the clients" in warning for warning in pooled.summary["warnings"])
    assert not any("data leaves the clients" in warning for warning in fedu.summary["warnings"])
    totals = [[row["total"] for row in result.rows("evaluations", round=3)] for result in (pooled, fedu)]
    assert totals[0] == totals[1]
    assert pooled.accuracy > 0.5
    exchanged = [(row["sender"], row["receiver"]) for row in pooled.rows("messages", channel="data")]
    assert sorted(exchanged) == [("c000", "server")] * 3 + [("server", "c000")] * 3
