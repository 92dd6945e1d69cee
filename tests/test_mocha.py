"""MOCHA's mean-regularised form: its matrix, one round by hand, and the limit in which it is Local."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pflsim.algorithms.local import Local
from pflsim.algorithms.mocha import Mocha
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from pflsim.topology import laplacian
from tests.mixing import ROUNDS, close, near, personal, same, some, two_clients
from tests.problems import classification, least_squares, quadratics


def test_e49_omega_is_idempotent_its_trace_is_the_spread_and_it_is_the_complete_graphs_laplacian_over_n() -> None:
    """E49."""
    N, d = 7, 4
    Omega = (np.eye(N) - np.ones((N, N)) / N) @ (np.eye(N) - np.ones((N, N)) / N)
    W = np.random.default_rng(1).normal(size=(d, N))
    np.testing.assert_allclose(Omega @ Omega, Omega, atol=1e-14)
    spread = ((W - W.mean(1, keepdims=True)) ** 2).sum()
    np.testing.assert_allclose(np.trace(W @ Omega @ W.T), spread)
    np.testing.assert_allclose(laplacian(np.ones((N, N)) - np.eye(N)), N * Omega, atol=1e-14)


def test_e49_a_step_of_everybody_is_a_gradient_step_on_the_trace() -> None:
    """E49: without data, W <- W - eta lambda W Omega, the gradient of (lambda / 2) tr(W Omega W^T)."""
    flat = [np.eye(3) * 1e-300] * 4
    problem = quadratics(flat, [np.zeros(3)] * 4, step_size=0.1, local_steps=1)
    W = torch.from_numpy(np.random.default_rng(2).normal(size=(4, 3)))
    there = Round(1, (0, 1, 2, 3), problem.federation, 0.1)
    method = Mocha(lam=3.0)
    answers = [Answer(k, {"w": W[k]}, {}, 0, 3) for k in range(4)]
    all = method.server_step(method.server_init(problem.federation), answers, there)
    Omega = torch.eye(4).double() - 0.25
    for k in range(4):
        task: Any = problem.new_task(k, 0, 0)
        moved = method.client_step({"w": W[k]}, method.server_down(all, k, there), task)[0]["w"]
        near(moved, (W - 0.1 * 3.0 * Omega @ W)[k])


@pytest.mark.parametrize("make", [least_squares, classification])
def test_e50_without_its_pull_it_is_local(make: Any) -> None:
    """E50, bit for bit here."""
    problem = make()
    mocha, local = run(Mocha(lam=0.0), problem, ROUNDS, some), run(Local(), problem, ROUNDS, some)
    same(personal(mocha, "w"), personal(local, "w"))


def test_the_own_column_of_the_mean_is_live_and_the_others_are_frozen() -> None:
    ran = run(Mocha(lam=2.0), two_clients(step_size=0.1, local_steps=3), 2)
    w = [0.1, 0.1]
    for _ in range(2):
        frozen = list(w)
        for i, (h, b) in enumerate(((2.0, 1.0), (4.0, -1.0))):
            for _ in range(3):
                wbar = (w[i] + frozen[1 - i]) / 2
                w[i] -= 0.1 * (h * (w[i] - b) + 2.0 * (w[i] - wbar))
    close(personal(ran, "w"), *w)
    close(ran.all["wbar"], sum(w) / 2)
    found: Any = models(Mocha(), two_clients(), ran, 1)
    assert list(found) == ["personalised"]
    close(found["personalised"], w[1])


def test_with_one_step_a_round_it_comes_to_rest_in_the_optimum() -> None:
    problem = two_clients(step_size=0.1, local_steps=1)
    A = np.diag([2.0, 4.0]) + 3.0 * (np.eye(2) - 0.5)
    ran = run(Mocha(lam=3.0), problem, 300)
    close(personal(ran, "w"), *np.linalg.solve(A, [2.0, -4.0]), atol=1e-9)


def test_the_mean_is_over_all_columns_or_over_those_that_are_drawn_together() -> None:
    problem = least_squares()
    W = torch.arange(12).double().reshape(4, 3)
    state = {"w": W, "wbar": W.mean(0)}
    there = Round(1, (1, 2), problem.federation, 0.05)
    down = Mocha().server_down(state, 1, there)
    close(down["wbar"], *W.mean(0))
    assert down["m"].tolist() == [4]
    down = Mocha(columns="sampled").server_down(state, 1, there)
    close(down["wbar"], *W[1:3].mean(0))
    assert down["m"].tolist() == [2]
    assert Mocha(columns="sampled").server_down(state, 0, there)["m"].tolist() == [4]  # it is only evaluated


def test_a_client_that_is_not_drawn_keeps_its_column_which_counts() -> None:
    ran = run(Mocha(), two_clients(step_size=0.1), 2, draw=lambda *_: [0])
    close(ran.all["w"], float(ran.you[0]["w"]), 0.1)
    close(ran.all["wbar"], (float(ran.you[0]["w"]) + 0.1) / 2)


def test_an_arrival_replaces_its_column_whatever_its_age() -> None:
    problem = quadratics([np.eye(1)] * 3, [np.ones(1)] * 3)
    there = Round(0, (), problem.federation, 0.05)
    state = {"w": torch.tensor([[1.0], [2.0], [6.0]]), "wbar": torch.tensor([3.0])}
    came = Answer(1, {"w": torch.tensor([5.0])}, {}, 9, 5, weight=0.1)
    for after in (
        Mocha().server_arrival(state, came, 0.06, there),
        Mocha().server_buffer(state, [replace(came, up={"w": torch.tensor([7.0])}), came], [0.1, 0.1], there),
    ):
        close(after["w"], 1.0, 5.0, 6.0)
        close(after["wbar"], 4.0)


def test_what_cannot_work_is_refused_and_a_network_is_warned_about() -> None:
    for lam, said in ((-1.0, "algorithm.lam"), (40.0, "eta lambda = 2 must be below 2")):
        with pytest.raises(DescriptionError, match=said):
            Mocha(lam).check(least_squares().federation)
    assert "overshoots" in Mocha(30.0).check(least_squares().federation)[0]
    assert "convex" in Mocha().check(classification(hidden=6).federation)[0]
    assert Mocha().check(classification().federation) == []
