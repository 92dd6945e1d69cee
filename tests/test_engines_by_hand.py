"""The engines' arithmetic, on numbers that fit on paper: a fast client adds 1 to what it gets, a slow one adds 10.

The server starts at 0, links take no time, and a visit of the fast client takes 2.4 ms, one of the slow client 2.2 or
2.5 times as long.
"""

from math import sqrt
from typing import Any

import pytest
import torch

from nodes.sequential import FactList, run_sequentially
from pflsim.algorithms.fedavg import FedAvg
from pflsim.federation import Client, Federation, Round, Tensors
from pflsim.learning.task import Task
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description

Sent = list[float]


class Adds(FedAvg):
    """FedAvg on one number, whose clients add to it; `seen` are the numbers that the server sent, in order."""

    def __init__(self, fast: int, seen: Sent) -> None:
        super().__init__(weights="uniform")
        object.__setattr__(self, "fast", fast)
        object.__setattr__(self, "seen", seen)

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": torch.zeros(1, dtype=torch.float64)}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        self.seen.append(float(all["x"]))  # type: ignore[attr-defined]
        return {"x": all["x"]}

    def client_init(self, client: Client) -> Tensors:
        return {"own": torch.tensor([1.0 if client.id == self.fast else 10.0])}  # type: ignore[attr-defined]

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        task.sgd(task.network.initial(task.rng("unused")))  # the work that it declares
        return you, {"u": down["x"] + you["own"]}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> dict[str, torch.Tensor]:
        return {}


def played(schedule: dict[str, Any], slowdown: float, rounds: int, **settings: Any) -> tuple[list[float], FactList]:
    """Every number that the server had, each once, and what was told."""
    device = {"kind": "bimodal", "stragglers": 1, "slowdown": slowdown, "flops_per_second": 2e6}
    tables = description(
        **{
            "schedule": schedule,
            "devices": device | {"server_flops_per_second": float("inf")},
            "links": "ideal",
            "run__clients": 2,
            "run__rounds": rounds + 1,  # its first WORK says what the last one has made
            "run__eval_every": 0,
            "training__local_steps": 3,
        }
        | settings
    )
    study = Study(validate(tables), b"8 bytes.")
    sent: Sent = []
    speeds = [study.devices.device(name).flops_per_second for name in study.names]
    study.method = Adds(speeds.index(max(speeds)), sent)
    told = run_sequentially(study)
    return list(dict.fromkeys(sent)), told


def test_fedasync_mixes_with_0_6_and_less_the_older_an_answer_is() -> None:
    """Fast at 1 and 2, both fresh; slow at 2.5, two versions old; fast at 3, one version old."""
    found, _ = played({"kind": "fedasync", "concurrency": 2}, 2.5, 2)
    one = 0.6 * 1
    two = 0.4 * one + 0.6 * (one + 1)
    w = 0.6 / sqrt(3)
    three = (1 - w) * two + w * 10
    w = 0.6 / sqrt(2)
    four = (1 - w) * three + w * (two + 1)
    assert found[:5] == pytest.approx([0, one, two, three, four], abs=1e-12)


def test_fedbuff_moves_by_its_rate_and_less_for_an_old_answer() -> None:
    """Fast at 1 and 2 fill the first buffer; slow at 2.5, one version old, and fast at 3 the second."""
    found, _ = played({"kind": "fedbuff", "concurrency": 2, "buffer": 2, "rate": 0.5}, 2.5, 2)
    one = 0.5 * (1 + 1) / 2
    assert found[:3] == pytest.approx([0, one, one + 0.5 * (10 / sqrt(2) + 1) / 2], abs=1e-12)


def unit_s() -> float:
    """How long a visit of the fast client takes."""
    _, told = played({"kind": "sync"}, 2.0, 1)
    spans = [fact[4] - fact[3] for fact in told.facts if fact[0] == "spans" and fact[2] == "compute"]
    return min(spans) / 1e9


def test_an_answer_that_is_carried_counts_less_for_its_age() -> None:
    """The deadline is at 1.5: fast alone; at 3.0: slow of the round before, at 2.2, and fast, at 2.5."""
    late = {"kind": "deadline", "deadline_s": 1.5 * unit_s(), "over": 1.0, "late": "carry"}
    found, _ = played(late, 2.2, 2)
    w = 1 / sqrt(2)
    assert found[:3] == pytest.approx([0, 1, (2 + w * 10) / (1 + w)], abs=1e-12)


def test_the_greatest_age_that_is_taken_is_the_one_that_is_given() -> None:
    """The slow client's first answer is two versions old."""
    for most, discarded in ((2, 0), (1, 1)):
        _, told = played({"kind": "fedasync", "concurrency": 2, "max_staleness": most}, 2.5, 1)
        stale = [fact for fact in told.facts if fact[0] == "events" and fact[2] == "stale"]
        assert len(stale) == discarded


def test_a_deadline_by_quantile_leaves_so_much_slack() -> None:
    half = {"kind": "deadline", "quantile": 0.5, "slack": 1.5, "over": 1.0}
    _, told = played(half, 4.0, 1)
    first = next(fact for fact in told.facts if fact[0] == "rounds")
    assert first[3] == pytest.approx(1.5 * unit_s() * 1e9, abs=2)
    assert first[6] == 1


def test_so_many_more_than_are_wanted_are_asked_rounded_up() -> None:
    _, told = played({"kind": "deadline", "deadline_s": 1.0, "cohort": 3, "over": 1.3}, 2.0, 1, run__clients=5)
    first = next(fact for fact in told.facts if fact[0] == "rounds")
    assert first[5].count(",") + 1 == 4, "1.3 x 3 = 3.9"
