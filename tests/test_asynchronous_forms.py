"""What each method does with an arrival, and with a full buffer: by hand, and as a limit of its rounds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from nodes.sequential import run_sequentially
from pflsim import catalogue
from pflsim.algorithms.ditto import Ditto
from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.fedprox import FedProx
from pflsim.algorithms.fedu import FedU
from pflsim.algorithms.pfedme import PFedMe
from pflsim.algorithms.scaffold import Scaffold
from pflsim.algorithms.stratified import Stratified
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round, Tensors
from pflsim.spec import validate
from pflsim.study import Study
from tests import problems
from tests.launching import description
from tests.test_chaos import assert_same, shuffled
from tests.test_conformance import METHODS as WITH_A_SERVER

GRAPH = np.ones((4, 4)) - np.eye(4)
FEDERATION = problems.least_squares(graph=GRAPH).federation
ROUND = Round(3, (0, 1, 2, 3), FEDERATION, 0.05)
D = len(FEDERATION.initial)


def vector(seed: int) -> torch.Tensor:
    return torch.randn(D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def answer(client: int, up: Tensors, down: Tensors, weight: float = 1.0) -> Answer:
    return Answer(client, up, down, age=1, n_samples=5, weight=weight)


def test_ditto_mixes_its_global_model_as_fedavg_does_and_takes_a_buffer_as_fedavg_does() -> None:
    x, start, ends = vector(0), vector(1), [vector(2), vector(3)]
    own = [answer(k, {"dw": end - start}, {"x": start}) for k, end in enumerate(ends)]
    plain = [answer(k, {"u": end}, {"x": start}) for k, end in enumerate(ends)]
    for one, other in (
        (Ditto().server_arrival({"x": x}, own[0], 0.3, ROUND), FedAvg().server_arrival({"x": x}, plain[0], 0.3, ROUND)),
        (
            Ditto().server_buffer({"x": x}, own, [0.5, 1.0], ROUND),
            FedAvg().server_buffer({"x": x}, plain, [0.5, 1.0], ROUND),
        ),
    ):
        assert torch.allclose(one["x"], other["x"], atol=1e-12)


def test_pfedme_goes_beta_times_as_far() -> None:
    x, w, method = vector(0), vector(1), PFedMe(beta=2.0)
    came = answer(0, {"w": w}, {"x": x})
    assert torch.allclose(method.server_arrival({"x": x}, came, 0.25, ROUND)["x"], 0.5 * x + 0.5 * w, atol=1e-12)
    buffered = method.server_buffer({"x": x}, [came], [0.25], ROUND)["x"]
    assert torch.allclose(buffered, 0.5 * x + 0.5 * w, atol=1e-12)


def sent(name: str, start: torch.Tensor, end: torch.Tensor) -> Tensors:
    """What a client sends that started at `start` and came to `end`."""
    return {name: end - start if name == "dw" else end}


MIXING: list[tuple[Any, str, str]] = [
    (FedAvg("uniform"), "x", "u"),
    (FedProx(weights="uniform"), "x", "w"),
    (Ditto(), "x", "dw"),
    (PFedMe(), "x", "w"),
    (Stratified(), "w", "w"),
]
"""Methods with one global model; what they call it, and what they send up."""


@pytest.mark.parametrize(("method", "model", "name"), MIXING, ids=lambda part: type(part).__name__)
def test_an_arrival_moves_the_global_model_by_its_weight_towards_what_was_trained(
    method: Any, model: str, name: str
) -> None:
    now, start, end = vector(0), vector(1), vector(2)
    came = answer(1, sent(name, start, end), {model: start})
    assert torch.allclose(method.server_arrival({model: now}, came, 0.3, ROUND)[model], 0.7 * now + 0.3 * end)
    differences = answer(1, {"u": end - start}, {"x": start})
    after = FedAvg(upload="delta").server_arrival({"x": now}, differences, 0.3, ROUND)["x"]
    assert torch.allclose(after, 0.7 * now + 0.3 * end)


@pytest.mark.parametrize(("method", "model", "name"), MIXING, ids=lambda part: type(part).__name__)
def test_a_full_buffer_moves_the_global_model_by_the_mean_of_the_weighted_differences(
    method: Any, model: str, name: str
) -> None:
    now, starts, ends = vector(0), [vector(1), vector(2)], [vector(3), vector(4)]
    came = [answer(k, sent(name, starts[k], ends[k]), {model: starts[k]}) for k in (0, 1)]
    expected = now + (0.5 * (ends[0] - starts[0]) + 1.0 * (ends[1] - starts[1])) / 2
    assert torch.allclose(method.server_buffer({model: now}, came, [0.5, 1.0], ROUND)[model], expected)


@pytest.mark.parametrize(("method", "model", "name"), MIXING, ids=lambda part: type(part).__name__)
def test_an_answer_that_came_late_counts_by_its_weight(method: Any, model: str, name: str) -> None:
    """As a deadline with late = "carry" gives them."""
    now, ends = vector(0), [vector(1), vector(2)]
    came = [answer(k, sent(name, now, ends[k]), {model: now}, weight) for k, weight in ((0, 1.0), (1, 0.25))]
    expected = (ends[0] + 0.25 * ends[1]) / 1.25
    assert torch.allclose(method.server_step({model: now}, came, ROUND)[model], expected)


def test_scaffold_moves_by_its_nth_and_never_damps_the_control_variate() -> None:
    x, c, dy, dc = (vector(seed) for seed in range(4))
    came = answer(2, {"dy": dy, "dc": dc}, {}, weight=0.5)
    after = Scaffold(eta_g=2.0).server_arrival({"x": x, "c": c}, came, 0.1, ROUND)
    assert torch.allclose(after["x"], x + 2.0 * 0.5 / 4 * dy, atol=1e-12)
    assert torch.allclose(after["c"], c + dc / 4, atol=1e-12)


def test_a_buffer_of_scaffold_with_everybody_and_no_staleness_is_its_round() -> None:
    x, c = vector(0), vector(1)
    came = [answer(k, {"dy": vector(10 + k), "dc": vector(20 + k)}, {}) for k in range(4)]
    method = Scaffold()
    buffered, round_ = (
        method.server_buffer({"x": x, "c": c}, came, [1.0] * 4, ROUND),
        method.server_step({"x": x, "c": c}, came, ROUND),
    )
    assert all(torch.allclose(buffered[name], round_[name], atol=1e-12) for name in ("x", "c"))


@pytest.mark.parametrize("schedule", [{"kind": "fedasync"}, {"kind": "fedbuff", "buffer": 3}])
def test_scaffolds_c_stays_the_mean_of_all_c_i_whenever_answers_arrive(schedule: dict[str, Any]) -> None:
    """Checked by what the server would add: the sum of all dc that it has taken, over N."""
    taken: list[torch.Tensor] = []
    final: dict[str, torch.Tensor] = {}

    class Watched(Scaffold):
        def _moved(self, all: Tensors, answers: Any, shares: Any, round: Round) -> Tensors:
            taken.extend(one.up["dc"].double() for one in answers)
            final.update(super()._moved(all, answers, shares, round))
            return dict(final)

    slow = {"devices__flops_per_second": 2e6, "run__clients": 5, "run__rounds": 6}
    tables = description(schedule=schedule | {"concurrency": 4}, algorithm={"name": "scaffold"}, **slow)
    study = Study(validate(tables), b"8 bytes.")
    study.method = Watched()
    run_sequentially(study)
    assert len(taken) > 10
    assert torch.allclose(final["c"].double(), torch.stack(taken).sum(0) / 5, atol=1e-6)


def test_an_arrival_at_fedu_is_its_round_with_one_client_and_staleness_makes_the_step_smaller() -> None:
    table = {"w": torch.stack([vector(k) for k in range(4)])}
    came = answer(1, {"w": vector(9)}, {})
    method = FedU(eta_r=0.2)
    fresh = method.server_arrival(table, came, 0.6, ROUND)["w"]
    assert torch.equal(fresh, method.server_step(table, [came], ROUND)["w"])
    old = method.server_arrival(table, replace(came, weight=0.5), 0.3, ROUND)["w"]
    assert torch.allclose(old[1] - vector(9), (fresh[1] - vector(9)) / 2, atol=1e-12)
    assert torch.equal(old[[0, 2, 3]], table["w"][[0, 2, 3]])


@pytest.mark.parametrize("schedule", [{"kind": "fedasync"}, {"kind": "fedbuff", "buffer": 3}])
@pytest.mark.parametrize("method", WITH_A_SERVER)
def test_every_method_runs_without_rounds_and_gives_the_same_bits_in_any_order(
    method: str, schedule: dict[str, Any]
) -> None:
    slow = {"devices__flops_per_second": 2e6, "devices__jitter": 0.5, "run__clients": 5, "run__rounds": 4}
    tables = description(algorithm={"name": method}, schedule=schedule | {"concurrency": 3}, **slow)
    if schedule["kind"] == "fedasync" and not hasattr(catalogue.find("algorithms", method, ""), "server_arrival"):
        with pytest.raises(DescriptionError, match=r"no asynchronous form .* use fedbuff or a schedule with rounds"):
            Study(validate(tables), b"8 bytes.")
        return
    assert_same(shuffled(tables, 1), tables)


def test_normalised_averaging_takes_mean_steps_and_is_fedavg_where_all_take_as_many() -> None:
    x, ends = vector(0), [vector(1), vector(2)]

    def step(normalise: bool, *taus: int) -> torch.Tensor:
        came = [
            Answer(k, {"u": end, "steps": torch.tensor([tau])}, {"x": x}, 0, n)
            for k, (end, tau, n) in enumerate(zip(ends, taus, (3, 1), strict=True))
        ]
        return FedAvg(normalise=normalise).server_step({"x": x}, came, ROUND)["x"]

    assert torch.allclose(step(True, 4, 4), step(False, 4, 4), atol=1e-12)
    by_hand = x + (0.75 * 8 + 0.25 * 2) * (0.75 * (ends[0] - x) / 8 + 0.25 * (ends[1] - x) / 2)
    assert torch.allclose(step(True, 8, 2), by_hand, atol=1e-12)


@pytest.mark.parametrize(("budget_s", "slowest_ns"), [(0.08, 72_000_000), (0.001, 24_000_000)])
def test_a_time_budget_gives_the_slow_client_fewer_steps_but_one(budget_s: float, slowest_ns: int) -> None:
    """A step takes 2.4 ms, at the straggler 24 ms; a visit has 20."""
    device = {"kind": "bimodal", "stragglers": 1, "slowdown": 10.0, "flops_per_second": 2e6}
    tables = description(
        algorithm={"name": "fedavg", "normalise": True},
        devices=device | {"server_flops_per_second": 1e9},
        links="ideal",
        run__rounds=1,
        training__local_steps=20,
        training__local_s=budget_s,
        data__samples=480,
    )
    told = run_sequentially(Study(validate(tables), b"8 bytes.")).facts
    spans = sorted(fact[4] - fact[3] for fact in told if fact[0] == "spans" and fact[2] == "compute")
    assert spans == [48_000_000 if budget_s > 0.05 else 2_400_000] * 3 + [slowest_ns]
