"""The stratified method in its limits: FedAvg, local training and APFL; and its mixture, by hand.

"Bit for bit" is asked for with `same`. Cohorts are those of cyclic groups, as a run would draw them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.local import Local
from pflsim.algorithms.stratified import Stratified
from pflsim.conformance.rounds import Ran, models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Federation
from pflsim.learning.task import Task, Work
from pflsim.learning.training import Training
from pflsim.rng import stream
from pflsim.sampling import Population, Sampling, Setting, load
from tests.problems import Study, classification

ROUNDS, CLIENTS = 10, 6
Draw = Callable[[Federation, int], tuple[int, ...]]


def drawing(setting: Setting, count: int) -> Draw:
    """Cohorts of `count` as a run with this sampling draws them."""
    sampling: Any = load(setting)

    def draw(federation: Federation, number: int) -> tuple[int, ...]:
        population = Population(federation.sizes, None, np.ones(len(federation.sizes)))
        strata = sampling.strata(population, stream(3, "strata")) if hasattr(sampling, "strata") else ()
        population = Population(federation.sizes, None, population.visit_s, strata)
        return drawn(sampling, population, count, number)

    return draw


def drawn(sampling: Sampling, population: Population, count: int, number: int) -> tuple[int, ...]:
    everybody = range(len(population.sizes))
    return sampling.drawn(population, everybody, count, number, stream(3, "sampler", number), {})


GROUPS = drawing({"kind": "groups", "groups": 3}, 1)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    assert torch.equal(a, b)


def personal(ran: Ran, name: str) -> torch.Tensor:
    return torch.stack([you[name] for you in ran.you])


@pytest.fixture
def problem() -> Study:
    return classification(CLIENTS)


class ByAutograd(Task):
    """Differentiates cross-entropy as a mixture is differentiated, not by the formula for plain cross-entropy."""

    def sgd(self, w: torch.Tensor, **how: Any) -> torch.Tensor:
        return Task.sgd(self, w, loss=lambda logits, labels: functional.cross_entropy(logits, labels), **how)


@pytest.mark.parametrize("settings", [{}, {"ref": "old"}, {"mix": "logit"}], ids=str)
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_e51_the_servers_path_is_that_of_cyclic_fedavg_whatever_beta_is(
    beta: float, settings: dict[str, Any], decay: float
) -> None:
    """E51, bit for bit."""
    problem = classification(CLIENTS, weight_decay=decay)
    fedavg = run(FedAvg("uniform"), problem, ROUNDS, GROUPS)
    stratified = run(Stratified(beta=beta, **settings), problem, ROUNDS, GROUPS)
    for x, w in zip(fedavg.server, stratified.server, strict=True):
        same(x["x"], w["w"])
    assert not torch.equal(fedavg.server[0]["x"], fedavg.server[1]["x"])


@pytest.mark.parametrize("mix", ["prob", "logit"])
@pytest.mark.parametrize("ref", ["new", "old"])
def test_e52_without_its_personal_share_the_personal_model_stays_and_the_global_one_predicts(
    problem: Study, mix: Any, ref: Any
) -> None:
    """E52, bit for bit."""
    method = Stratified(beta=0.0, mix=mix, ref=ref)
    ran = run(method, problem, ROUNDS, GROUPS)
    for client in problem.federation.clients:
        same(ran.you[client]["v"], problem.federation.initial)
        task: Any = problem.new_task(client, 0, 0)
        offered: Any = models(method, problem, ran, client)
        by_w = task.network.logits(offered["global"], task.x)
        same(offered["personalised"](task.x), by_w if mix == "logit" else functional.log_softmax(by_w, 1))


@pytest.mark.parametrize("ref", ["new", "old"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_e53_with_the_personal_share_alone_it_is_local_training_in_the_visited_rounds(ref: Any, decay: float) -> None:
    """E53, bit for bit where logits are mixed; probabilities are rounded on their way through logarithms."""
    problem = classification(CLIENTS, kind_of_task=ByAutograd, weight_decay=decay)
    local = personal(run(Local(), problem, ROUNDS, GROUPS), "w")
    same(personal(run(Stratified(beta=1.0, mix="logit", ref=ref), problem, ROUNDS, GROUPS), "v"), local)
    of_probabilities = personal(run(Stratified(beta=1.0, mix="prob", ref=ref), problem, ROUNDS, GROUPS), "v")
    torch.testing.assert_close(of_probabilities, local, rtol=0, atol=1e-5)


def test_e54_with_one_group_the_global_model_is_that_of_fedavg_with_uniform_draws(problem: Study) -> None:
    """E54, bit for bit."""
    one_group = run(Stratified(), problem, ROUNDS, drawing({"kind": "groups", "groups": 1}, 2))
    fedavg = run(FedAvg("uniform"), problem, ROUNDS, drawing("uniform", 2))
    same(one_group.all["w"], fedavg.all["x"])
    assert [set(ups) for ups in one_group.ups] == [set(ups) for ups in fedavg.ups]


@pytest.mark.parametrize("ref", ["new", "old"])
def test_e54_mixed_logits_of_a_linear_model_are_apfl_with_mixed_parameters(problem: Study, ref: Any) -> None:
    """E54: v <- v - eta beta g(beta v + (1 - beta) w), with w after its step, or before it."""
    beta, ran = 0.3, run(Stratified(beta=0.3, mix="logit", ref=ref), problem, 1, GROUPS)
    (client,) = ran.ups[0]
    task: Any = problem.new_task(client, 0, 0)
    w = v = problem.federation.initial
    for batch in task.batches(task.steps):
        before, w = w, w - task.step_size * task.grad(w, batch)
        met = w if ref == "new" else before
        v = v - task.step_size * beta * task.grad(beta * v + (1 - beta) * met, batch)
    torch.testing.assert_close(ran.you[client]["v"], v, rtol=0, atol=1e-6)
    assert float((v - problem.federation.initial).abs().max()) > 1e-3


def test_the_gradient_of_mixed_probabilities_is_the_formula_worked_out_by_hand() -> None:
    """d loss / d z_v = beta (p(v)_y / q_y) (p(v) - e_y), averaged over the batch."""
    torch.manual_seed(1)
    method, beta = Stratified(beta=0.4), 0.4
    z_v, z_w = torch.randn(5, 3, dtype=torch.float64, requires_grad=True), torch.randn(5, 3, dtype=torch.float64)
    y = torch.tensor([0, 2, 1, 1, 0])
    mixture: Any = method._mixture
    functional.cross_entropy(mixture(z_v, z_w), y).backward()  # type: ignore[no-untyped-call]
    p_v, p_w, rows = z_v.detach().softmax(1), z_w.softmax(1), torch.arange(5)
    q = beta * p_v + (1 - beta) * p_w
    expected = beta * (p_v[rows, y] / q[rows, y])[:, None] * (p_v - functional.one_hot(y, 3)) / 5
    assert z_v.grad is not None
    torch.testing.assert_close(z_v.grad, expected)
    torch.testing.assert_close(mixture(z_v, z_w).exp(), q)


def test_a_mixture_of_two_models_that_are_sure_and_wrong_stays_finite() -> None:
    mixture: Any = Stratified()._mixture
    z = torch.tensor([[500.0, 0.0]], requires_grad=True)
    loss = functional.cross_entropy(mixture(z, z.detach()), torch.tensor([1]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 500.0 and z.grad is not None and z.grad.isfinite().all()


def test_the_personal_step_size_moves_the_personal_model_alone(problem: Study) -> None:
    still, slow = (run(Stratified(eta_c=eta_c), problem, ROUNDS, GROUPS) for eta_c in (0.0, 0.01))
    same(still.all["w"], slow.all["w"])
    for client in problem.federation.clients:
        same(still.you[client]["v"], problem.federation.initial)
        assert torch.equal(slow.you[client]["v"], problem.federation.initial) == (slow.visits[client] == 0)


def spent(procedure: Any, problem: Study) -> tuple[torch.Tensor, Work]:
    """What one visit of client 0 makes of w, and what it costs; declared and done are the same."""
    method = Stratified(local_procedure=procedure)
    task: Any = problem.new_task(0, 0, 0)
    down = {"w": problem.federation.initial}
    declared = method.client_work(task, down)
    _, up = method.client_step({"v": problem.federation.initial}, down, task)
    assert task.spent == declared
    return up["w"], declared


def test_gd_takes_full_gradients_however_small_the_batch_is() -> None:
    problem = classification(CLIENTS, batch=4)
    w, work = spent("gd", problem)
    task: Any = problem.new_task(0, 0, 0)
    expected, rows = problem.federation.initial, np.sort(task.part.train)
    for _ in range(task.steps):
        expected = expected - task.step_size * task.network.gradient(expected, task.x[rows], task.y[rows])
    torch.testing.assert_close(w, expected, rtol=0, atol=1e-6)
    assert work == Work(3 * task.steps * task.n_samples, 2 * task.steps * task.n_samples)


def test_sgd_draws_each_batch_anew_with_replacement_and_shuffled_passes_do_not() -> None:
    problem = classification(CLIENTS, batch=4, local_steps=None, local_epochs=40)
    task: Any = problem.new_task(0, 0, 0)
    n, once = task.n_samples, -(-task.n_samples // 4)
    with_replacement = [rows.tolist() for rows in task._rows(task.steps, "batch", "sgd")]
    assert [len(rows) for rows in with_replacement] == [4] * task.steps
    assert any(len(set(rows)) < 4 for rows in with_replacement), "the same sample twice in a batch"
    counts = np.bincount(np.concatenate(with_replacement), minlength=len(task.x))[np.sort(task.part.train)]
    expected = 4 * task.steps / n
    assert np.all(abs(counts - expected) < 5 * np.sqrt(expected)) and len(set(counts)) > 1
    passes = task._rows(task.steps, "batch")
    for at in range(0, task.steps, once):
        assert sorted(torch.cat(passes[at : at + once]).tolist()) == sorted(task.part.train.tolist())
    assert spent("sgd", problem)[1] == Work(12 * task.steps, 8 * task.steps)
    assert not torch.equal(spent("sgd", problem)[0], spent("shuffled", problem)[0])


def test_the_personal_model_may_be_evaluated_with_the_w_of_its_own_last_visit(problem: Study) -> None:
    """A20: the newest w of the server, or what the client sent last; before its first visit that is w0."""
    newest, last = Stratified(), Stratified(evaluated_w="last")
    ran, kept = run(newest, problem, 3, GROUPS), run(last, problem, 3, GROUPS)
    same(ran.all["w"], kept.all["w"])
    for client in problem.federation.clients:
        same(ran.you[client]["v"], kept.you[client]["v"])
        sent = [ups[client]["w"] for ups in kept.ups if client in ups]
        same(kept.you[client]["w"], sent[-1] if sent else problem.federation.initial)
        task: Any = problem.new_task(client, 0, 0)
        v, of_last, of_newest = (
            task.network.logits(w, task.x) for w in (kept.you[client]["v"], kept.you[client]["w"], kept.all["w"])
        )
        found: list[Any] = [models(newest, problem, ran, client), models(last, problem, kept, client)]
        same(found[0]["personalised"](task.x), newest._mixture(v, of_newest))
        same(found[1]["personalised"](task.x), last._mixture(v, of_last))
        same(found[1]["global"], kept.all["w"])
        assert torch.equal(of_last, of_newest) == (client in kept.ups[-1]), "a cohort of one is the server's w"


@pytest.mark.parametrize(
    ("settings", "training", "said"),
    [
        ({"beta": 1.1}, {}, "algorithm.beta = 1.1: must be from 0 to 1"),
        ({"beta": float("nan")}, {}, "algorithm.beta = nan: must be from 0 to 1"),
        ({"eta_c": -1.0}, {}, "algorithm.eta_c = -1.0: must be finite and at least 0"),
        ({}, {"momentum": 0.9}, "training.momentum = 0.9: stratified trains two models"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], training: dict[str, Any], said: str) -> None:
    federation = classification(CLIENTS, **training).federation
    assert isinstance(federation.training, Training)
    with pytest.raises(DescriptionError) as problem:
        Stratified(**settings).check(federation)
    assert str(problem.value).startswith(said)
