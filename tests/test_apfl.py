"""APFL: its two models and its mixing weight by hand, its limits, and its two ways of mixing."""

from typing import Any

import pytest
import torch

from pflsim.algorithms.apfl import APFL
from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.local import Local
from pflsim.algorithms.stratified import Stratified
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from tests.mixing import ROUNDS, close, near, personal, same, some, two_clients
from tests.problems import classification, least_squares

KINDS: list[dict[str, Any]] = [
    {},
    {"ref": "new"},
    {"adaptive": True},
    {"mix": "output"},
    {"mix": "output", "ref": "new", "adaptive": True},
    {"evaluate_with": "last"},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("a", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_e20_the_servers_path_is_that_of_fedavg_whatever_a_is(a: float, kind: dict[str, Any], decay: float) -> None:
    """E20, bit for bit."""
    problem = classification(weight_decay=decay)
    apfl, fedavg = run(APFL(a, **kind), problem, ROUNDS, some), run(FedAvg("uniform"), problem, ROUNDS, some)
    same(apfl.all["x"], fedavg.all["x"])


@pytest.mark.parametrize("mix", ["parameter", "output"])
@pytest.mark.parametrize("ref", ["old", "new"])
def test_e20_without_its_own_share_the_personal_output_is_the_global_one(mix: Any, ref: Any) -> None:
    """E20, bit for bit."""
    problem = classification()
    method = APFL(0.0, mix=mix, ref=ref)
    ran = run(method, problem, ROUNDS, some)
    task: Any = problem.new_task(0, 0, 0)
    offered: Any = models(method, problem, ran, 0)
    if mix == "parameter":
        same(offered["personalised"], ran.all["x"])
    else:
        same(offered["personalised"](task.x), task.network.logits(ran.all["x"], task.x))
    same(ran.you[0]["v"], problem.federation.initial)


@pytest.mark.parametrize("ref", ["old", "new"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("make", [least_squares, classification])
def test_e20_with_its_own_share_alone_the_personal_model_is_local(ref: Any, decay: float, make: Any) -> None:
    """E20, bit for bit."""
    problem = make(weight_decay=decay)
    apfl, local = run(APFL(1.0, ref=ref), problem, ROUNDS, some), run(Local(), problem, ROUNDS, some)
    same(personal(apfl, "v"), personal(local, "w"))
    offered: Any = models(APFL(1.0), problem, apfl, 1)
    same(offered["personalised"], local.you[1]["w"])


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("ref", ["old", "new"])
def test_e21_mixing_outputs_is_mixing_parameters_for_a_linear_model(adaptive: bool, ref: Any) -> None:
    """E21, in float32."""
    problem = classification()
    outputs, parameters = (run(APFL(0.4, adaptive, mix, ref), problem, ROUNDS) for mix in ("output", "parameter"))
    near(personal(outputs, "v"), personal(parameters, "v"), 1e-5)
    near(personal(outputs, "a"), personal(parameters, "a"), 1e-5)
    assert not torch.equal(personal(outputs, "v")[0], problem.federation.initial)


def test_a_fixed_mixture_of_outputs_is_the_stratified_method_that_mixes_logits() -> None:
    problem = classification()
    apfl = run(APFL(0.3, mix="output", ref="new"), problem, ROUNDS, some)
    stratified = run(Stratified(0.3, mix="logit", ref="new"), problem, ROUNDS, some)
    near(personal(apfl, "v"), personal(stratified, "v"), 1e-6)


@pytest.mark.parametrize("ref", ["old", "new"])
def test_both_models_and_the_share_by_hand(ref: Any) -> None:
    method = APFL(0.25, adaptive=True, ref=ref, eta_v=0.05, a_decay=0.5)
    ran = run(method, two_clients(step_size=0.1, local_steps=2), 2, draw=lambda *_: [0])
    x, v, a = 0.1, 0.1, 0.25
    for _ in range(2):
        w = x
        for step in range(2):
            after = w - 0.1 * 2 * (w - 1)
            other = w if ref == "old" else after
            g = 2 * (a * v + (1 - a) * other - 1)
            slope_of_a = (v - other) * g + 0.5 * a
            v -= 0.05 * a * g
            a = a - 0.1 * slope_of_a if step == 0 else a
            w = after
        x = w
    close(ran.all["x"], x)
    close(ran.you[0]["v"], v)
    close(ran.you[0]["a"], a)
    close(models(method, two_clients(), ran, 0)["personalised"], a * v + (1 - a) * x)  # type: ignore[arg-type]


def test_the_share_stays_between_0_and_1() -> None:
    """A step of 100 would take it anywhere."""
    for start in (0.1, 0.9):
        ran = run(APFL(start, adaptive=True, ref="new", eta_v=0.0), two_clients(step_size=100.0, local_steps=1), 3)
        assert all(0.0 <= float(you["a"]) <= 1.0 for you in ran.you)
        assert {float(you["a"]) for you in ran.you} <= {0.0, 1.0}


def test_a_client_may_be_evaluated_with_the_global_model_of_its_last_visit() -> None:
    problem = two_clients(step_size=0.1, local_steps=1)
    method = APFL(0.5, evaluate_with="last")
    ran = run(method, problem, 1)
    w, v = float(ran.ups[0][0]["w"]), float(ran.you[0]["v"])
    found: Any = models(method, problem, ran, 0)
    close(found["personalised"], 0.5 * v + 0.5 * w)
    close(found["global"], float(ran.all["x"]))


def test_only_the_shared_model_knows_of_staleness() -> None:
    problem = least_squares()
    x, there = problem.federation.initial, Round(0, (0,), problem.federation, 0.05)
    came = Answer(0, {"w": x + 1}, {"x": x}, 3, 5)
    close(APFL().server_arrival({"x": x}, came, 0.25, there)["x"], *(x + 0.25))
    close(APFL().server_buffer({"x": x + 2}, [came, came], [0.5, 1.0], there)["x"], *(x + 2 + 1.5 / 2))


@pytest.mark.parametrize(
    ("settings", "training", "said"),
    [
        ({"a": 1.5}, {}, "algorithm.a"),
        ({"a": float("nan")}, {}, "algorithm.a"),
        ({"eta_v": -1.0}, {}, "algorithm.eta_v"),
        ({"a_decay": -1.0, "adaptive": True}, {}, "algorithm.a_decay"),
        ({"a_decay": 0.02}, {}, "needs algorithm.adaptive"),
        ({}, {"momentum": 0.9}, "training.momentum"),
    ],
)
def test_what_cannot_work_is_refused(settings: Any, training: Any, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        APFL(**settings).check(least_squares(**training).federation)
