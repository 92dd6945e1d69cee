"""One update of each method, computed by hand.

Client i minimises f_i(w) = (1/2) h_i (w - b_i)^2 in one dimension, with full gradients, from w0 = 0.1.
"""

import numpy as np
import pytest
import torch

from pflsim.algorithms.ditto import Ditto
from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.fedprox import FedProx
from pflsim.algorithms.fedu import FedU
from pflsim.algorithms.local import Local
from pflsim.algorithms.pfedme import PFedMe
from pflsim.algorithms.scaffold import Scaffold
from pflsim.conformance.rounds import models, run
from pflsim.federation import Answer, Round
from pflsim.learning.whole_data import full_gradient, smoothness
from tests.problems import least_squares, quadratics, study

PAIR = np.array([[0.0, 0.5], [0.5, 0.0]])


def two_clients(graph=None, **training):
    """h = (2, 4), b = (1, -1)."""
    curvatures = [np.array([[2.0]]), np.array([[4.0]])]
    return quadratics(curvatures, [np.array([1.0]), np.array([-1.0])], graph, **training)


def close(tensor, *numbers):
    np.testing.assert_allclose(tensor.double().numpy().ravel(), numbers, rtol=0, atol=1e-12)


def test_local_steps_down_its_own_gradient_only():
    ran = run(Local(), two_clients(step_size=0.1, local_steps=1), 1)
    close(ran.you[0]["w"], 0.1 - 0.1 * 2 * (0.1 - 1))
    close(ran.you[1]["w"], 0.1 - 0.1 * 4 * (0.1 + 1))


def test_fedavg_weighs_by_samples():
    rows = [(torch.ones(n, 1).double(), torch.full((n,), b).double()) for n, b in ((1, 1.0), (3, -1.0))]
    problem = study(rows, step_size=0.1, local_steps=1)  # f = (1/2) (w - b)^2 with 1 and 3 samples
    u = (0.1 - 0.1 * (0.1 - 1), 0.1 - 0.1 * (0.1 + 1))
    close(run(FedAvg(), problem, 1).all["x"], (1 * u[0] + 3 * u[1]) / 4)
    close(run(FedAvg(weights="uniform"), problem, 1).all["x"], (u[0] + u[1]) / 2)


def test_fedavg_evaluates_the_global_and_a_fine_tuned_model():
    problem = two_clients(step_size=0.1, local_steps=1)
    ran = run(FedAvg(), problem, 1)
    evaluated = models(FedAvg(), problem, ran, 0)
    x = float(ran.all["x"])
    assert list(evaluated) == ["global", "finetuned"]
    close(evaluated["global"], x)
    close(evaluated["finetuned"], x - 0.1 * 2 * (x - 1))
    assert list(models(FedAvg(finetune=False), problem, ran, 0)) == ["global"]


def test_fedprox_is_held_back_from_the_second_step_on():
    ran = run(FedProx(mu=3.0), two_clients(step_size=0.1, local_steps=2), 1, draw=lambda *_: [0])
    first = 0.1 - 0.1 * 2 * (0.1 - 1)
    close(ran.all["x"], first - 0.1 * (2 * (first - 1) + 3 * (first - 0.1)))


def test_each_method_is_evaluated_by_the_model_that_its_paper_means():
    """The headline: a client's own model where there is one, else the server's."""
    problem, own = two_clients(PAIR, step_size=0.05, local_steps=1), {Local: "w", Ditto: "v", PFedMe: "theta"}
    for kind in (Local, Ditto, PFedMe, FedAvg, FedProx, Scaffold, FedU):
        ran = run(kind(), problem, 2)
        headline = next(iter(models(kind(), problem, ran, 1).values()))
        held = ran.you[1][own[kind]] if kind in own else ran.all["w"][1] if kind is FedU else ran.all["x"]
        assert torch.equal(headline, held), kind


def test_ditto_pulls_the_personal_model_towards_what_was_received():
    method = Ditto(lam=3.0, eta_p=0.05)
    ran = run(method, two_clients(step_size=0.1, local_steps=1), 2, draw=lambda *_: [0])
    x1 = 0.1 - 0.1 * 2 * (0.1 - 1)
    v1 = 0.1 - 0.05 * (2 * (0.1 - 1) + 3 * (0.1 - 0.1))
    close(ran.server[1]["x"], x1)
    close(ran.you_before[1][0]["v"], v1)
    close(ran.you[0]["v"], v1 - 0.05 * (2 * (v1 - 1) + 3 * (v1 - x1)))


def test_an_interleaved_ditto_pulls_towards_what_was_received_too():
    ran = run(Ditto(lam=3.0, eta_p=0.05, order="interleave"), two_clients(step_size=0.1, local_steps=2), 1)
    v = 0.1 - 0.05 * 2 * (0.1 - 1)
    close(ran.you[0]["v"], v - 0.05 * (2 * (v - 1) + 3 * (v - 0.1)))


def test_ditto_takes_its_own_number_of_personal_steps():
    ran = run(Ditto(lam=0.0, personal_steps=3), two_clients(step_size=0.1, local_steps=1), 1)
    close(ran.you[0]["v"], 1 + 0.8**3 * (0.1 - 1))


@pytest.mark.parametrize("start", ["round", "step", "persist"])
def test_pfedme_moves_theta_then_w(start):
    lam, eta_p, eta, mu = 4.0, 0.05, 0.1, 0.5
    method = PFedMe(lam=lam, eta_p=eta_p, inner_steps=2, mu=mu, theta_init=start, beta=2.0)
    ran = run(method, two_clients(step_size=eta, local_steps=2), 2, draw=lambda *_: [0])
    x = theta = 0.1
    for _ in range(2):
        w = x
        theta = theta if start == "persist" else w
        for _ in range(2):
            theta = w if start == "step" else theta
            for _ in range(2):
                theta -= eta_p * (2 * (theta - 1) + lam * (theta - w) + mu * theta)
            w -= eta * lam * (w - theta)
        x = (1 - 2.0) * x + 2.0 * w
    close(ran.you[0]["theta"], theta)
    close(ran.you[0]["w"], w)
    close(ran.all["x"], x)


def test_pfedme_takes_its_inner_step_size_from_the_smoothness():
    problem = two_clients(step_size=0.01)
    states = [PFedMe(lam=12.0).client_init(problem.client(i)) for i in (0, 1)]
    close(states[0]["eta_p"], 1 / (2 + 12))
    close(states[1]["eta_p"], 1 / (4 + 12))
    close(PFedMe(lam=1.0).client_init(problem.client(0))["eta_p"], 0.1)
    close(PFedMe(lam=1.0, eta_p=0.3).client_init(problem.client(0))["eta_p"], 0.3)


def test_the_smoothness_is_the_largest_curvature():
    client = least_squares([90], d=6).client(0)
    gram = client.task.a.T @ client.task.a / 90
    found = smoothness(client.task, client.initial, client.rng("smoothness"))
    largest = float(torch.linalg.eigvalsh(gram)[-1])
    assert 0.9 * largest < found <= largest * (1 + 1e-9)


def test_the_full_gradient_weighs_every_sample_alike():
    task = least_squares([10], batch=4).new_task(0, 0, 0)
    w = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)
    expected = task.a.T @ (task.a @ w - task.y) / 10
    torch.testing.assert_close(full_gradient(task, w), expected, rtol=0, atol=1e-12)
    assert (task.spent.forward_samples, task.spent.backward_samples) == (10, 10)


def test_pfedme_evaluates_theta_first_and_w_and_x_beside_it():
    problem = two_clients(step_size=0.01)
    ran = run(PFedMe(), problem, 1)
    assert list(models(PFedMe(), problem, ran, 0)) == ["personalised", "local", "global"]
    assert list(models(PFedMe(eval_model="w_local"), problem, ran, 0)) == ["local", "personalised", "global"]


def test_pfedme_can_let_all_work_and_average_the_drawn():
    problem = two_clients(step_size=0.01)
    one = run(PFedMe(), problem, 3, draw=lambda *_: [0])
    both = run(PFedMe(train_all=True), problem, 3, draw=lambda *_: [0])
    assert torch.equal(one.all["x"], both.all["x"])
    assert (one.visits, both.visits) == ([3, 0], [3, 3])
    assert not torch.equal(both.you[1]["theta"], one.you[1]["theta"])


@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_corrects_the_second_round_by_the_first(option):
    ran = run(Scaffold(option=option, eta_g=0.5), two_clients(step_size=0.1, local_steps=2), 2)
    h, b, x, c, c_i = (2.0, 4.0), (1.0, -1.0), 0.1, 0.0, [0.0, 0.0]
    for _ in range(2):
        y, renewed = [x, x], [0.0, 0.0]
        for i in (0, 1):
            for _ in range(2):
                y[i] -= 0.1 * (h[i] * (y[i] - b[i]) - c_i[i] + c)
            renewed[i] = h[i] * (x - b[i]) if option == "I" else c_i[i] - c + (x - y[i]) / (2 * 0.1)
        c += sum(renewed[i] - c_i[i] for i in (0, 1)) / 2
        x, c_i = x + 0.5 * (sum(y) / 2 - x), renewed
    close(ran.all["x"], x)
    close(ran.all["c"], c)
    close(torch.stack([you["c"] for you in ran.you]), *c_i)


def test_scaffold_keeps_its_control_variate_where_the_step_size_has_run_out():
    problem = two_clients(step_size=0.1, schedule="cosine", schedule_rounds=2)
    before = run(Scaffold(), problem, 2)
    after = run(Scaffold(), problem, 3)  # the step size of the third round is 0
    assert torch.equal(before.you[0]["c"], after.you[0]["c"])
    assert torch.isfinite(after.all["x"]).all()


def test_fedu_moves_two_neighbours_towards_each_other():
    problem = two_clients(PAIR, step_size=0.1, local_steps=2)
    method = FedU(eta_r=0.5, reg_R="steps", reg_scale=2.0)
    v = (1 + 0.8**2 * (0.1 - 1), -1 + 0.6**2 * (0.1 + 1))
    pull = 0.1 * 2 * 0.5 * 2.0 * 0.5  # mu R eta_r reg_scale a
    close(run(method, problem, 1).all["w"], v[0] - pull * (v[0] - v[1]), v[1] - pull * (v[1] - v[0]))


def test_fedu_in_place_lets_the_second_client_see_the_first_ones_new_model():
    problem = two_clients(PAIR, step_size=0.1, local_steps=2)
    method = FedU(eta_r=1.0, reg_R="steps", order="gauss_seidel")
    v, pull = (1 + 0.8**2 * (0.1 - 1), -1 + 0.6**2 * (0.1 + 1)), 0.1 * 2 * 0.5
    first = v[0] - pull * (v[0] - v[1])
    close(run(method, problem, 1).all["w"], first, v[1] - pull * (v[1] - first))


def test_fedu_uses_the_last_known_model_of_a_neighbour_that_was_not_drawn():
    problem = two_clients(PAIR, step_size=0.1, local_steps=1)
    v0 = 0.1 - 0.1 * 2 * (0.1 - 1)
    stale = run(FedU(eta_r=1.0, reg_R="steps"), problem, 1, draw=lambda *_: [0])
    alone = run(FedU(eta_r=1.0, reg_R="steps", neighbours="sampled"), problem, 1, draw=lambda *_: [0])
    close(stale.all["w"], v0 - 0.05 * (v0 - 0.1), 0.1)
    close(alone.all["w"], v0, 0.1)


@pytest.mark.parametrize(
    ("training", "epochs", "steps"),
    [({"local_epochs": 5, "local_steps": None}, 5.0, 5 * 2.5), ({"local_steps": 5}, 5 / 2.5, 5.0)],
)
def test_fedu_counts_epochs_or_steps(training, epochs, steps):
    """With batches of 4 the clients of 7 and 9 samples have 2 and 3 batches in an epoch, 2.5 on average."""
    problem = least_squares([7, 9], graph=PAIR, **{"step_size": 0.1, "local_steps": None, **training})
    federation = problem.federation
    state = {"w": torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)}
    for R, reg_R in ((epochs, "epochs"), (steps, "steps")):
        answer = Answer(0, {"w": state["w"][0]}, {}, 0, 7)
        moved = FedU(eta_r=0.1, reg_R=reg_R).server_step(state, [answer], Round(0, (0,), federation, 0.1))
        close(moved["w"][0], *[0.1 * R * 0.1 * 0.5] * 3)
