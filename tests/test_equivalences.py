"""Limits in which one method is another, and what each method keeps invariant.

"Bit for bit" is asked for with `same`; everything else is asked for to 1e-10 in float64.
"""

import numpy as np
import pytest
import torch

from pflsim.algorithms.ditto import Ditto
from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.fedprox import FedProx
from pflsim.algorithms.local import Local
from pflsim.algorithms.pfedme import PFedMe
from pflsim.algorithms.scaffold import Scaffold
from pflsim.conformance.rounds import run
from pflsim.learning.task import Task
from pflsim.rng import stream
from tests.problems import classification, least_squares

ROUNDS = 10


def some(federation, number):
    """Half of the clients, drawn anew in each round."""
    clients = len(federation.clients)
    return stream(9, "cohort", number).permutation(clients)[: clients // 2].tolist()


def near(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def same(a, b):
    assert torch.equal(a, b)


def all_of(ran, name):
    """A private vector of every client, [N, d]."""
    return torch.stack([you[name] for you in ran.you])


@pytest.fixture(params=["least squares", "classification"])
def problem(request):
    """A federation in float64 with closed forms, and one with the real task in float32."""
    return least_squares() if request.param == "least squares" else classification()


def test_e12_fedprox_without_its_proximal_term_is_fedavg(problem):
    """E12, bit for bit."""
    for draw in (some, lambda federation, _: federation.clients):
        same(
            run(FedProx(mu=0.0), problem, ROUNDS, draw).all["x"],
            run(FedAvg(), problem, ROUNDS, draw).all["x"],
        )


def test_e13_fedavg_with_equal_sizes_weighs_by_samples_as_uniformly():
    """E13."""
    problem = least_squares([6, 6, 6])
    near(run(FedAvg("samples"), problem, ROUNDS).all["x"], run(FedAvg("uniform"), problem, ROUNDS).all["x"])


def test_fedavg_of_differences_is_fedavg_of_models():
    problem = least_squares()
    near(run(FedAvg(upload="delta"), problem, ROUNDS).all["x"], run(FedAvg(), problem, ROUNDS).all["x"])


def test_e14_the_first_round_of_scaffold_is_fedavg(problem):
    """E14: the clients' steps bit for bit, the server's mean to rounding."""
    scaffold, fedavg = run(Scaffold(), problem, 1), run(FedAvg("uniform", upload="delta"), problem, 1)
    for client, up in scaffold.ups[0].items():
        same(up["dy"], fedavg.ups[0][client]["u"])
    near(scaffold.all["x"].double(), run(FedAvg("uniform"), problem, 1).all["x"].double(), 1e-6)


def test_e15_scaffold_with_one_step_is_sgd_on_the_mean_gradient():
    """E15: all clients, R = 1, every round."""
    problem = least_squares(local_steps=1)
    x = problem.federation.initial
    ran = run(Scaffold(), problem, ROUNDS)
    for number in range(ROUNDS):
        tasks = [problem.new_task(i, number, number) for i in problem.federation.clients]
        x = x - 0.05 * torch.stack([task.grad(x, next(task.batches(1))) for task in tasks]).mean(0)
        near(ran.server[number + 1]["x"], x)


def test_e16_the_control_variate_of_a_single_step_is_the_gradient_at_x():
    """E16: option II with R = 1."""
    problem = least_squares(local_steps=1)
    ran = run(Scaffold(option="II"), problem, 3)
    for i in problem.federation.clients:
        task = problem.new_task(i, 2, 2)
        near(ran.you[i]["c"], task.grad(ran.server[2]["x"], next(task.batches(1))))


@pytest.mark.parametrize("option", ["I", "II"])
def test_e16_the_servers_control_variate_is_always_the_mean_of_the_clients(option):
    """E16: whoever is drawn."""
    problem = least_squares()
    for rounds in range(1, ROUNDS):
        ran = run(Scaffold(option=option), problem, rounds, some)
        near(ran.all["c"], all_of(ran, "c").mean(0))


def test_e17_scaffold_with_the_same_data_everywhere_is_fedavg():
    """E17: identical data and identical batches, here the whole data in each step."""
    problem = least_squares([8, 8, 8], batch=8)
    data = problem.new_task(0, 0, 0)
    alike = type(problem)(problem.federation, lambda i, visit, round: copy_for(i, data, visit, round))
    near(run(Scaffold(), alike, ROUNDS).all["x"], run(FedAvg("uniform"), alike, ROUNDS).all["x"])


def copy_for(client, task, visit, round):
    return type(task)(task.a, task.y, task.training, client, visit, round)


@pytest.mark.parametrize("lam", [0.0, 0.3, 5.0])
def test_e26_the_global_branch_of_ditto_is_fedavg_for_every_lambda(problem, lam):
    """E26, bit for bit."""
    fedavg = run(FedAvg("uniform", upload="delta"), problem, ROUNDS, some)
    same(run(Ditto(lam=lam), problem, ROUNDS, some).all["x"], fedavg.all["x"])


def test_e27_ditto_without_its_pull_is_local():
    """E27, bit for bit: Local draws its batches from the stream of Ditto's personal branch here."""
    exact, real = least_squares(stream_of=lambda _: "personal"), classification(kind_of_task=PersonalTask)
    for problem, personal in ((least_squares(), exact), (classification(), real)):
        ditto, local = run(Ditto(lam=0.0), problem, ROUNDS, some), run(Local(), personal, ROUNDS, some)
        same(all_of(ditto, "v"), all_of(local, "w"))


class PersonalTask(Task):
    """Draws every batch from the stream of the personal branch."""

    def rng(self, purpose):
        return Task.rng(self, "personal")


def test_e28_ditto_with_a_full_pull_steps_from_the_received_model():
    """E28: eta_p lambda = 1 gives v' = x - eta_p g_i(v)."""
    problem = least_squares(local_steps=1)
    ran = run(Ditto(lam=4.0, eta_p=0.25), problem, 3)
    for i in problem.federation.clients:
        task = problem.new_task(i, 2, 2)
        v = ran.you_before[2][i]["v"]
        near(ran.you[i]["v"], ran.server[2]["x"] - 0.25 * task.grad(v, next(task.batches(1, "personal"))))


def test_the_branches_of_an_interleaved_ditto_share_their_batches():
    ran = run(Ditto(lam=0.0, order="interleave"), least_squares(), 1)
    for i, up in ran.ups[0].items():
        near(ran.you[i]["v"], ran.server[0]["x"] + up["dw"])


def test_an_interleaved_ditto_decays_its_weights_as_sgd_does():
    problem = least_squares(weight_decay=0.1)
    interleaved = run(Ditto(order="interleave"), problem, ROUNDS)
    near(interleaved.all["x"], run(Ditto(), problem, ROUNDS).all["x"])


def test_e04_pfedme_without_its_pull_leaves_the_server_alone_and_trains_theta_locally():
    """E04."""
    problem = least_squares()
    ran = run(PFedMe(lam=0.0, mu=0.0, inner_steps=1, eta_p=0.05, theta_init="persist"), problem, ROUNDS)
    near(ran.all["x"], problem.federation.initial)
    near(all_of(ran, "theta"), all_of(run(Local(), problem, ROUNDS), "w"))


@pytest.mark.parametrize("Q", [1, 5])
def test_e05_pfedme_with_a_full_outer_step_is_fedprox(Q):
    """E05: eta lambda = 1, R = 1, beta = 1, mu = 0, theta from x; FedProx takes Q steps on the same batch."""
    lam, eta_p = 4.0, 0.03
    pfedme = PFedMe(lam=lam, eta_p=eta_p, inner_steps=Q, mu=0.0, theta_init="round")
    one_batch = {"batch": 100, "seed": 2}
    a = run(pfedme, least_squares(step_size=1 / lam, local_steps=1, **one_batch), ROUNDS)
    fedprox = FedProx(mu=lam, weights="uniform")
    b = run(fedprox, least_squares(step_size=eta_p, local_steps=Q, **one_batch), ROUNDS)
    near(a.all["x"], b.all["x"])


@pytest.mark.parametrize("method", [Local(), Ditto(), Scaffold(), PFedMe()], ids=lambda m: type(m).__name__)
def test_what_happens_to_a_client_does_not_depend_on_a_method_that_went_before(method):
    """Two runs of one method object give the same bits: it keeps nothing."""
    problem = least_squares()
    first, second = run(method, problem, 3), run(method, problem, 3)
    for a, b in zip(first.you, second.you, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_smoothness_bounds_the_inner_step_of_pfedme_for_real_data():
    """With the inner step size left out, theta settles: one more inner step hardly moves it."""
    problem = classification(batch=100, local_steps=1)
    few, many = (run(PFedMe(inner_steps=Q), problem, 1) for Q in (60, 120))
    assert float(few.you[0]["eta_p"]) < 0.1
    near(all_of(few, "theta"), all_of(many, "theta"), 1e-4)
    assert np.isfinite(all_of(many, "theta").numpy()).all()
