"""Per-FedAvg: its steps on quadratics by hand, and the limit in which it is FedAvg."""

from typing import Any

import numpy as np
import pytest
import torch

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.per_fedavg import PerFedAvg
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from tests.mixing import ROUNDS, close, near, same, some, two_clients
from tests.problems import Study, classification, least_squares, quadratics

H = np.array([[3.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 1.0]])


@pytest.mark.parametrize("variant", ["HF", "FO"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("make", [least_squares, classification])
def test_e10_per_fedavg_that_does_not_adapt_is_fedavg(variant: Any, decay: float, make: Any) -> None:
    """E10, bit for bit, with eta = beta on the batches b2: FO, and HF too since nothing is subtracted."""
    slow, usual = make(step_size=0.01, weight_decay=decay), make(weight_decay=decay)
    per_fedavg = run(PerFedAvg(variant, alpha=0.0, beta=0.05), slow, ROUNDS, some)
    fedavg = run(FedAvg("uniform"), usual, ROUNDS, some)
    same(per_fedavg.all["x"], fedavg.all["x"])


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.5, 10.0])
def test_e11_the_hessian_free_step_on_a_quadratic_is_the_exact_one_for_any_delta(delta: float) -> None:
    """E11: (I - alpha H) grad f(v) with v = w - alpha grad f(w)."""
    b, alpha = np.array([1.0, -2.0, 0.5]), 0.1
    problem = quadratics([H], [b], step_size=0.05, local_steps=3)
    w = problem.federation.initial.numpy()
    for _ in range(3):
        v = w - alpha * H @ (w - b)
        w = w - 0.05 * (np.eye(3) - alpha * H) @ H @ (v - b)
    ran = run(PerFedAvg(alpha=alpha, delta=delta), problem, 1)
    near(ran.all["x"], torch.from_numpy(w), 1e-9 if delta < 1e-3 else 1e-12)


def test_first_order_leaves_the_hessian_out_and_weights_are_alike_or_those_of_the_samples() -> None:
    problem = two_clients(step_size=0.05, local_steps=1)
    u = []
    for h, b in ((2.0, 1.0), (4.0, -1.0)):
        v = 0.1 - 0.1 * h * (0.1 - b)
        u.append(0.1 - 0.05 * h * (v - b))
    close(run(PerFedAvg("FO", alpha=0.1), problem, 1).all["x"], sum(u) / 2)
    answers = [Answer(k, {"w": torch.tensor([w])}, {}, 0, n) for k, (w, n) in enumerate(zip(u, (1, 3), strict=True))]
    there = Round(0, (0, 1), problem.federation, 0.05)
    close(PerFedAvg(weights="samples").server_step({}, answers, there)["x"].double(), (u[0] + 3 * u[1]) / 4, atol=1e-6)


def test_the_three_batches_of_a_step_are_drawn_apart() -> None:
    """With the same batch everywhere the exact step would be that of the batch's own quadratic."""
    problem = least_squares([40], batch=4, local_steps=1)
    task: Any = problem.new_task(0, 0, 0)
    w = problem.federation.initial
    b1, b2, b3 = (next(task.batches(1, purpose)) for purpose in ("adapt", "batch", "hessian"))
    assert len({tuple(batch) for batch in (b1, b2, b3)}) == 3
    g2 = task.grad(w - 0.1 * task.grad(w, b1), b2)
    curved = task.a[b3].T @ (task.a[b3] @ g2) / 4
    near(run(PerFedAvg(alpha=0.1), problem, 1).all["x"], w - 0.05 * (g2 - 0.1 * curved))


def test_where_the_gradient_vanishes_nothing_moves() -> None:
    problem = quadratics([np.eye(3)], [np.array([0.1, 0.2, 0.3])])  # w0 is the optimum
    near(run(PerFedAvg(alpha=0.1), problem, 1).all["x"], problem.federation.initial, 0.0)


def test_a_huge_gradient_does_not_overflow_the_difference() -> None:
    problem = quadratics([np.eye(3) * 1e3], [np.full(3, 1e30)], step_size=1e-9, local_steps=1)
    assert torch.isfinite(run(PerFedAvg(alpha=1e-9), problem, 1).all["x"]).all()


def test_the_personal_model_is_one_step_on_training_data_away() -> None:
    problem = two_clients(step_size=0.05, local_steps=1)
    method = PerFedAvg(alpha=0.2)
    ran = run(method, problem, 2)
    offered: Any = models(method, problem, ran, 1)
    x = float(ran.all["x"])
    assert list(offered) == ["personalised", "global"]
    close(offered["personalised"], x - 0.2 * 4 * (x + 1))
    close(offered["global"], x)


def test_the_reference_adapts_on_two_batches_of_test_data_with_alpha_and_then_beta() -> None:
    problem = classification()
    method = PerFedAvg(alpha=0.3, beta=0.7, adapt_on="test_reference")
    ran = run(method, problem, 1)
    task: Any = problem.new_task(0, 1, 1)
    rows, v = torch.from_numpy(task.part.test), ran.all["x"]
    for step in (0.3, 0.7):  # three test samples: every batch has them all
        v = v - step * task.network.gradient(v, task.x[rows], task.y[rows])
    found: Any = models(method, problem, ran, 0)
    near(found["personalised"], v, 1e-6)
    (warning,) = method.check(problem.federation)
    assert "adapted to the very data that they are tested on" in warning


def without_samples(problem: Study) -> Any:
    task: Any = problem.new_task(0, 0, 0)
    task.part.train = task.part.train[:0]
    return task


def test_a_client_without_samples_returns_and_evaluates_what_it_received() -> None:
    problem = classification()
    task, x = without_samples(problem), problem.federation.initial
    same(PerFedAvg().client_step({}, {"x": x}, task)[1]["w"], x)
    same(PerFedAvg().client_model({}, {"x": x}, task)["personalised"], x)


def test_arrivals_and_buffers_are_fedavgs() -> None:
    problem = least_squares()
    x, u = problem.federation.initial, problem.federation.initial + 1
    there = Round(0, (0,), problem.federation, 0.05)
    came = Answer(0, {"w": u}, {"x": x}, 0, 5)
    close(PerFedAvg().server_arrival({"x": x}, came, 0.25, there)["x"], *(x + 0.25))
    close(PerFedAvg().server_buffer({"x": x + 2}, [came, came], [0.5, 1.0], there)["x"], *(x + 2 + 1.5 / 2))


@pytest.mark.parametrize(
    ("settings", "training", "said"),
    [
        ({"alpha": -0.1}, {}, "algorithm.alpha"),
        ({"beta": 0.0}, {}, "algorithm.beta"),
        ({"delta": 0.0}, {}, "algorithm.delta"),
        ({"alpha": float("nan")}, {}, "algorithm.alpha"),
        ({}, {"momentum": 0.9}, "training.momentum"),
    ],
)
def test_what_cannot_work_is_refused(settings: Any, training: Any, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        PerFedAvg(**settings).check(least_squares(**training).federation)
