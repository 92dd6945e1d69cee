"""pFedBayes against autograd and torch's own Adam, and in its limits."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from pflsim.algorithms import pfedbayes
from pflsim.algorithms.pfedbayes import PFedBayes
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from tests.problems import classification, least_squares

ROUNDS = 4


def normal(mu: torch.Tensor, rho: torch.Tensor) -> Normal:
    return Normal(mu, functional.softplus(rho))


def vectors(*seeds: int) -> list[torch.Tensor]:
    return [torch.from_numpy(np.random.Generator(np.random.Philox(seed)).normal(size=5)) for seed in seeds]


def test_the_slopes_of_the_divergence_are_those_of_autograd() -> None:
    parts = [vector.requires_grad_() for vector in vectors(1, 2, 3, 4)]
    q, w = (parts[0], parts[1]), (parts[2], parts[3])
    expected = torch.autograd.grad(kl_divergence(normal(*q), normal(*w)).sum(), parts)
    of_q, of_w = pfedbayes._kl_slopes(q, w)
    for found, slope in zip((*of_q, *of_w), expected, strict=True):
        torch.testing.assert_close(found.detach(), slope)


def test_e30_a_distribution_has_no_divergence_from_itself_and_no_slope() -> None:
    q = tuple(vectors(1, 2))
    for slope in (slope for pair in pfedbayes._kl_slopes(q, q) for slope in pair):
        torch.testing.assert_close(slope, torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("elbo", ["paper", "code"])
def test_a_visit_is_what_autograd_and_torchs_adam_make_of_the_objective(elbo: Any) -> None:
    problem = least_squares([7], local_steps=3)
    method = PFedBayes(zeta=0.7, inner_steps=2, eta=0.01, eta_p=0.02, elbo=elbo, rho0=-1.0)
    ran = run(method, problem, 2)
    mu = problem.federation.initial.clone().requires_grad_()
    rho = torch.full_like(mu, -1.0).requires_grad_()
    server = [mu.detach().clone(), rho.detach().clone()]
    for visit in range(2):
        task: Any = problem.new_task(0, visit, visit)
        own = [vector.clone().requires_grad_() for vector in server]
        of_q, of_w = torch.optim.Adam([mu, rho], lr=0.02), torch.optim.Adam(own, lr=0.01)
        noise = task.rng("noise")
        for rows in task.batches(3):
            for _ in range(2):
                eps = (1.0 if elbo == "paper" else 0.001) * torch.from_numpy(noise.standard_normal(3))
                w = mu + functional.softplus(rho) * eps
                errors = (task.a[rows] @ w - task.y[rows]) ** 2 / 2
                likelihood = errors.sum() * (7 / len(rows) if elbo == "paper" else 1)
                share = 0.7 / (3 if elbo == "code" else 1)
                of_q.zero_grad()
                (likelihood + share * kl_divergence(normal(mu, rho), normal(*map(torch.detach, own))).sum()).backward()
                of_q.step()
            of_w.zero_grad()
            (share * kl_divergence(normal(mu.detach(), rho.detach()), normal(*own)).sum()).backward()
            of_w.step()
        server = [vector.detach() for vector in own]
    for found, expected in (
        (ran.you[0]["mu"], mu),
        (ran.you[0]["rho"], rho),
        (ran.all["mu"], server[0]),
        (ran.all["rho"], server[1]),
    ):
        torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("elbo", ["paper", "code"])
def test_e30_without_the_divergence_the_server_never_moves_and_clients_do(elbo: Any) -> None:
    problem = classification()
    ran = run(PFedBayes(zeta=0.0, elbo=elbo), problem, ROUNDS)
    for name, start in (("mu", problem.federation.initial), ("rho", torch.tensor(-3.0))):
        torch.testing.assert_close(ran.all[name], start.expand_as(ran.all[name]), rtol=0, atol=1e-6)
    assert float((ran.you[0]["mu"] - problem.federation.initial).abs().max()) > 1e-3


def test_e30_without_noise_the_result_does_not_depend_on_what_the_noise_would_be() -> None:
    problem = least_squares()
    still, other = (
        run(PFedBayes(eps_std=0.0), least_squares(), ROUNDS),
        run(PFedBayes(eps_std=0.0), Shifted(problem), 4),
    )
    assert torch.equal(still.you[0]["mu"], other.you[0]["mu"])
    noisy, shifted = run(PFedBayes(), problem, ROUNDS), run(PFedBayes(), Shifted(problem), ROUNDS)
    assert not torch.equal(noisy.you[0]["mu"], shifted.you[0]["mu"])


class Shifted:
    """The same federation, whose noise is that of another seed."""

    def __init__(self, problem: Any) -> None:
        self.federation, self._problem = problem.federation, problem

    def client(self, i: int) -> Any:
        return self._problem.client(i)

    def new_task(self, client: int, visit: int, round: int) -> Any:
        task = self._problem.new_task(client, visit, round)
        usual = task.rng
        task.rng = lambda purpose: usual("another" if purpose == "noise" else purpose)
        return task


def test_a_strong_divergence_holds_the_personal_mean_at_the_server() -> None:
    problem = classification(local_steps=20)

    def distance(zeta: float) -> float:
        ran = run(PFedBayes(zeta=zeta, eta=1e-6), problem, ROUNDS)
        return float((ran.you[0]["mu"] - ran.all["mu"]).norm())

    assert distance(1000.0) < 0.3 * distance(0.0)


def test_the_server_goes_beta_times_as_far_and_may_weigh_by_samples() -> None:
    problem = least_squares()
    this = Round(0, (0, 1), problem.federation, 0.05)
    mu, rho, a, b = vectors(1, 2, 3, 4)
    state = {"mu": mu, "rho": rho}
    came = [Answer(0, {"mu": a, "rho": b}, state, 0, 3), Answer(1, {"mu": b, "rho": a}, state, 0, 1)]
    after = PFedBayes(beta=2.0).server_step(state, came, this)
    torch.testing.assert_close(after["mu"], -mu + (a + b))
    torch.testing.assert_close(after["rho"], -rho + (a + b))
    weighed = PFedBayes(weights="samples").server_step(state, came, this)
    torch.testing.assert_close(weighed["mu"], 0.75 * a + 0.25 * b)
    arrived = PFedBayes(beta=2.0).server_arrival(state, came[0], 0.25, this)
    torch.testing.assert_close(arrived["rho"], 0.5 * rho + 0.5 * b)
    buffered = PFedBayes(beta=2.0).server_buffer(state, came, [0.5, 0.25], this)
    torch.testing.assert_close(buffered["mu"], mu + (a - mu + 0.5 * (b - mu)) / 2)


def test_matched_moments_are_those_of_the_mixture() -> None:
    mu1, rho1, mu2, rho2 = vectors(1, 2, 3, 4)
    state = {"mu": mu1, "rho": rho1}
    came = [Answer(0, {"mu": mu1, "rho": rho1}, state, 0, 3), Answer(1, {"mu": mu2, "rho": rho2}, state, 0, 1)]
    this = Round(0, (0, 1), least_squares().federation, 0.05)
    after = PFedBayes(aggregate="moments", weights="samples").server_step(state, came, this)
    mean = 0.75 * mu1 + 0.25 * mu2
    second = 0.75 * (functional.softplus(rho1) ** 2 + mu1**2) + 0.25 * (functional.softplus(rho2) ** 2 + mu2**2)
    torch.testing.assert_close(after["mu"], mean)
    torch.testing.assert_close(functional.softplus(after["rho"]) ** 2, second - mean**2)


def test_it_evaluates_the_mean_network_or_the_mean_prediction_of_some_that_are_drawn() -> None:
    problem = classification()
    ran = run(PFedBayes(), problem, 1)
    offered = models(PFedBayes(), problem, ran, 0)
    assert list(offered) == ["personalised", "global"]
    assert torch.equal(offered["personalised"], ran.you[0]["mu"])
    assert torch.equal(offered["global"], ran.all["mu"])
    task: Any = problem.new_task(0, 1, 1)
    predict: Any = models(PFedBayes(samples=2), problem, ran, 0)["personalised"]
    eps = torch.from_numpy(task.rng("prediction").standard_normal((2, 15))).float()
    drawn = [ran.you[0]["mu"] + functional.softplus(ran.you[0]["rho"]) * row for row in eps]
    expected = sum(task.network.logits(w, task.x).softmax(1) for w in drawn) / 2
    torch.testing.assert_close(predict(task.x).exp(), expected)


@pytest.mark.parametrize(
    ("settings", "training", "said"),
    [
        ({"zeta": -1.0}, {}, "algorithm.zeta = -1.0"),
        ({"eta_p": 0.0}, {}, "algorithm.eta_p = 0.0"),
        ({"rho0": 99.0}, {}, "algorithm.rho0 = 99.0: must be from -20 to 20"),
        ({}, {"momentum": 0.9}, "training.momentum = 0.9: pfedbayes has steps of its own"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], training: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        PFedBayes(**settings).check(classification(**training).federation)
    assert str(problem.value).startswith(said)
