"""SFL: smoothing over a graph, the two pulls by hand, and its limits, FedAvg and Local."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.sfl import SFL, _graph, _nearness
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from tests.mixing import ROUNDS, close, near, two_clients
from tests.problems import classification, least_squares, quadratics

COMPLETE = np.ones((4, 4)) - np.eye(4)
NOBODY = np.zeros((4, 4))


@pytest.mark.parametrize("layers", [1, 3])
def test_e50_over_the_complete_graph_without_pulls_it_is_fedavg(layers: int) -> None:
    """E50: A^ = 1 1^T / N, serveralpha 1."""
    problem = least_squares(graph=COMPLETE)
    sfl = run(SFL(layers, 0.0, 0.0), problem, ROUNDS)
    near(sfl.all["z"], run(FedAvg("uniform"), problem, ROUNDS).all["x"])
    for i in range(4):
        found: Any = models(SFL(layers, 0.0, 0.0), problem, sfl, i)
        near(found["personalised"], sfl.all["z"])


def test_e50_without_an_edge_a_client_gets_back_what_it_sent() -> None:
    """E50: A^ = I, without pulls."""
    problem = least_squares(graph=NOBODY)
    ran = run(SFL(3, 0.0, 0.0), problem, ROUNDS)
    for i in range(4):
        found: Any = models(SFL(), problem, ran, i)
        near(found["personalised"], ran.ups[-1][i]["w"])
        near(found["local"], ran.ups[-1][i]["w"])
    near(ran.all["z"], torch.stack([up["w"] for up in ran.ups[-1].values()]).mean(0))


@pytest.mark.parametrize("serveralpha", [1.0, 0.6])
def test_the_models_are_smoothed_layers_times_and_read_out_by_hand(serveralpha: float) -> None:
    path = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 3.0], [0.0, 3.0, 0.0]])
    problem = quadratics([np.eye(2)] * 3, [np.ones(2)] * 3, path)
    W = np.array([[1.0, 2.0], [-1.0, 0.5], [4.0, 0.0]])
    method, there = SFL(layers=2, serveralpha=serveralpha), Round(0, (0, 1, 2), problem.federation, 0.05)
    answers = [Answer(k, {"w": torch.from_numpy(W[k])}, {}, 0, 2) for k in range(3)]
    state = method.server_step(method.server_init(problem.federation), answers, there)
    A = (path + np.eye(3)) / (path + np.eye(3)).sum(1, keepdims=True)
    U = serveralpha * A @ A @ W + (1 - serveralpha) * W
    for k in range(3):
        close(method.server_down(state, k, there)["u"], *U[k])
    close(state["z"], *U.mean(0))


@pytest.mark.parametrize("squared", [False, True])
def test_a_client_starts_from_z_and_is_pulled_to_both(squared: bool) -> None:
    problem: Any = two_clients(step_size=0.1, local_steps=3)
    down = {"u": torch.tensor([2.0]).double(), "z": torch.tensor([0.5]).double()}
    method = SFL(reg_u=0.3, reg_z=0.7, squared=squared)
    w = 0.5
    for _ in range(3):
        u_part, z_part = w - 2.0, w - 0.5
        if not squared:
            u_part, z_part = float(np.sign(u_part)), float(np.sign(z_part))
        w -= 0.1 * (2 * (w - 1) + 0.3 * u_part + 0.7 * z_part)
    close(method.client_step({}, down, problem.new_task(0, 0, 0))[1]["w"], w)


def test_a_pull_has_the_length_of_its_weight_in_any_dimension() -> None:
    pull = SFL()._pull(torch.tensor([3.0, 4.0]))
    close(pull, 0.6, 0.8, atol=1e-7)
    close(SFL()._pull(torch.zeros(2)), 0.0, 0.0)


def test_without_a_topology_clients_with_a_common_class_are_linked() -> None:
    federation = replace(least_squares().federation, labels=((0, 1), (1, 2), (3,), (2, 0)))
    expected = np.array([[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]])
    np.testing.assert_array_equal(_graph(federation).numpy(), expected)


def test_a_learned_graph_links_the_nearest_models() -> None:
    w = torch.tensor([[0.0], [1.0], [5.0], [5.5]])
    near_by = _nearness(w, 1)
    assert near_by.argmax(1).tolist() == [1, 0, 3, 2]
    assert (near_by > 0).sum(1).tolist() == [1, 1, 1, 1]
    mean = (1 + 25 + 30.25 + 16 + 20.25 + 0.25) * 2 / 12
    close(near_by[0, 1], np.exp(-1 / mean), atol=1e-6)
    assert _nearness(w, 30).diagonal().tolist() == [0.0] * 4
    close(_nearness(torch.ones(2, 3), 5), 0.0, 1.0, 1.0, 0.0)


def test_with_a_learned_graph_a_client_without_neighbours_has_some() -> None:
    problem = least_squares(graph=NOBODY)
    alone, linked = run(SFL(), problem, 2), run(SFL(learned=0.05), problem, 2)
    near(alone.all["smooth"], torch.eye(4).double())
    near(linked.all["smooth"].sum(1), torch.ones(4).double())
    assert (linked.all["smooth"].fill_diagonal_(0.0).sum(1) > 0.01).all()


def test_a_client_that_is_not_drawn_keeps_its_row() -> None:
    problem = least_squares(graph=COMPLETE)
    ran = run(SFL(), problem, 3, draw=lambda *_: [1, 2])
    near(ran.all["w"][0], problem.federation.initial)
    near(ran.all["w"][1], ran.ups[-1][1]["w"])


def test_an_arrival_replaces_its_row_whatever_its_age() -> None:
    problem = least_squares(graph=COMPLETE)
    there = Round(0, (), problem.federation, 0.05)
    state = SFL().server_init(problem.federation)
    came = Answer(1, {"w": torch.ones(3).double()}, {}, 9, 5, weight=0.1)
    for after in (SFL().server_arrival(state, came, 0.06, there), SFL().server_buffer(state, [came], [0.1], there)):
        close(after["w"][1], 1.0, 1.0, 1.0)
        near(after["z"], (3 * problem.federation.initial + 1) / 4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"layers": -1}, "algorithm.layers"),
        ({"reg_u": -1.0}, "algorithm.reg_u"),
        ({"reg_z": float("nan")}, "algorithm.reg_z"),
        ({"serveralpha": 1.1}, "algorithm.serveralpha"),
        ({"learned": -0.1}, "algorithm.learned"),
        ({"nearest": 0}, "algorithm.nearest"),
        ({"reg_u": 30.0, "reg_z": 10.0, "squared": True}, r"eta \(reg_u \+ reg_z\) = 2 must be below 2"),
    ],
)
def test_what_cannot_work_is_refused(settings: Any, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        SFL(**settings).check(least_squares().federation)


def test_norms_that_are_not_squared_are_stable_whatever_their_weights() -> None:
    assert SFL(reg_u=30.0, reg_z=10.0).check(least_squares().federation) == []
    assert "overshoots" in SFL(reg_u=20.0, reg_z=10.0, squared=True).check(least_squares().federation)[0]
    finite: Any = run(SFL(reg_u=3.0), classification(), ROUNDS)
    assert torch.isfinite(finite.all["z"]).all()
