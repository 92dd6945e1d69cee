"""MOCHA in the dual: a sample by hand, the gap between primal and dual, and related tasks on synthetic binary data."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nodes.sequential import run_sequentially
from pflsim.algorithms.mocha_dual import MochaDual, _related
from pflsim.conformance.rounds import Ran, models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Federation, Round, Tensors
from pflsim.learning.task import Task
from pflsim.learning.vector import network
from pflsim.spec import validate
from pflsim.study import Study as BuiltStudy
from tests.launching import description
from tests.mixing import close, near
from tests.problems import Study, classification, training_of

SIGMA = np.array([[0.4, 0.2, -0.1], [0.2, 0.35, 0.05], [-0.1, 0.05, 0.25]])


class Rows:
    def __init__(self, rows: range) -> None:
        self.train = np.array(rows, dtype=np.int64)
        self.validation = self.test = np.array([], dtype=np.int64)


def one_sample(x: list[float], y: int, *, bias: bool = True, **training: Any) -> Any:
    """A client with one sample, and a linear model with two outputs."""
    net = network(nn.Sequential(nn.Flatten(), nn.Linear(len(x), 2, bias=bias)), (len(x),))
    chosen = training_of(batch=1, **{"local_steps": 1, **training})
    return Task(net, torch.tensor([x]), torch.tensor([y]), Rows(range(1)), chosen, 1, 0, 0, 0)


def visit(method: MochaDual, task: Any, sigma: float, rho: float, w: torch.Tensor | None = None) -> tuple[Any, Any]:
    d = task.network.layout.dimension
    you = {"a": torch.zeros(1, 2).double(), "b": torch.zeros(d).double()}
    down = {"w": torch.zeros(d) if w is None else w, "relation": torch.tensor([sigma, rho])}
    return method.client_step(you, down, task)


def test_one_sample_by_hand_inside_the_box_and_at_its_edge() -> None:
    """||x~||^2 = 1 + 4 + 1; alpha = lambda n / (Sigma rho ||x~||^2), or 1; a = alpha y; b = a x~ / n."""
    task = one_sample([1.0, 2.0], 1)
    for lam, alpha in ((0.3, 0.3 / (0.5 * 2.0 * 6.0)), (30.0, 1.0)):
        you, up = visit(MochaDual(lam), task, sigma=0.5, rho=2.0)
        close(you["a"], -alpha, alpha, atol=1e-7)
        close(up["b"], -alpha, -2 * alpha, alpha, 2 * alpha, -alpha, alpha, atol=1e-6)


def test_a_second_step_sees_what_the_first_one_changed_rho_times() -> None:
    lam, sigma, rho, x = 0.3, 0.5, 2.0, 6.0
    first = lam / (sigma * rho * x)
    margin = 1 - rho * sigma / lam * first * x  # of w + rho dw: now 0, so that nothing changes
    assert margin == pytest.approx(0)
    you, _ = visit(MochaDual(lam), one_sample([1.0, 2.0], 1, local_steps=2), sigma, rho)
    close(you["a"], -first, first, atol=1e-7)
    w = torch.tensor([0.0, 0.0, 0.1, 0.2, 0.0, 0.0])  # class 1 has the margin 0.5 already
    you, _ = visit(MochaDual(lam), one_sample([1.0, 2.0], 1), sigma, rho, w)
    close(you["a"], -first, first / 2, atol=1e-7)


def test_a_sample_of_length_0_is_passed_over() -> None:
    you, _ = visit(MochaDual(), one_sample([0.0, 0.0], 1, bias=False), 0.5, 1.0)
    close(you["a"], 0.0, 0.0)


class Given(MochaDual):
    """With a relation that is known."""

    def server_init(self, federation: Federation) -> Tensors:
        return super().server_init(federation) | {"sigma": torch.from_numpy(SIGMA)}


def gap(problem: Study, ran: Ran, lam: float) -> float:
    """Primal less dual of all machines together, by the definitions alone."""
    B, Sigma, found = ran.all["b"].numpy(), ran.all["sigma"].numpy(), 0.0
    W = Sigma @ B / lam
    np.testing.assert_allclose(ran.all["w"].numpy(), W, atol=1e-9)
    for t in problem.federation.clients:
        task: Any = problem.new_task(t, 0, 0)
        rows = torch.from_numpy(task.part.train)
        logits = task.network.logits(torch.from_numpy(W[t]).float(), task.x[rows]).double().numpy()
        signs = np.where(task.y[rows].numpy()[:, None] == np.arange(3), 1.0, -1.0)
        alpha = ran.you[t]["a"].abs().numpy()
        assert alpha.min() >= 0.0 and alpha.max() <= 1.0
        found += np.maximum(0, 1 - signs * logits).sum(1).mean() - alpha.sum(1).mean()
    return found + float(np.trace(B.T @ Sigma @ B)) / lam


@pytest.mark.parametrize("kind", [MochaDual, Given])
def test_the_gap_between_primal_and_dual_is_never_negative_and_closes(kind: type[MochaDual]) -> None:
    """Strong duality: where it is 0, the objective is at its minimum."""
    problem, lam = classification(3, batch=10, local_steps=10), 0.1
    method = kind(lam, relate_every=0)
    early, late = (gap(problem, run(method, problem, rounds), lam) for rounds in (1, 150))
    assert early > 0.02
    assert -1e-5 < late < 2e-3


def test_the_relation_is_the_root_of_the_gram_matrix_over_its_trace() -> None:
    w = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 9)))
    Sigma = _related(w)
    near(Sigma.trace(), torch.tensor(1.0).double())
    near(Sigma @ Sigma / (Sigma @ Sigma).trace(), w @ w.T / (w @ w.T).trace(), 1e-6)
    near(_related(torch.zeros(3, 2).double()), torch.eye(3).double() / 3)
    assert float(torch.linalg.eigvalsh(_related(torch.ones(3, 2).double()))[0]) >= 0.9e-7


def test_the_relation_is_learned_after_so_many_visits_and_the_models_follow_it() -> None:
    problem = classification(3)
    method = MochaDual(0.1, relate_every=2)
    before, after = run(method, problem, 1), run(method, problem, 2)
    near(before.all["sigma"], torch.eye(3).double() / 3)
    never = run(MochaDual(0.1, relate_every=0), problem, 2)
    near(after.all["sigma"], _related(never.all["w"]))
    near(after.all["w"], after.all["sigma"] @ after.all["b"] / 0.1)
    sigma = after.all["sigma"].numpy()
    down = method.server_down(after.all, 1, Round(2, (1,), problem.federation, 0.05))
    close(down["relation"], sigma[1, 1], (np.abs(sigma).sum(1) / np.diag(sigma)).max(), atol=1e-6)
    found: Any = models(method, problem, after, 1)
    near(found["personalised"], after.all["w"][1].float())


def test_the_relation_is_not_learned_before_everybody_has_answered() -> None:
    problem = classification(3)
    method = MochaDual(0.1, relate_every=1)
    ran = run(method, problem, 6, draw=lambda _, number: [0, 1] if number < 5 else [2])
    near(ran.server[5]["sigma"], torch.eye(3).double() / 3)
    near(ran.all["sigma"], _related(ran.server[5]["w"] + (ran.all["b"] - ran.server[5]["b"]) / 0.3))
    assert ran.all["answers"].tolist() == [0, 0, 0]


def test_an_arrival_replaces_its_row_and_moves_all_models_that_are_related() -> None:
    problem = classification(3)
    there, method = Round(0, (), problem.federation, 0.05), Given(0.5, relate_every=0)
    state, rng = method.server_init(problem.federation), np.random.default_rng(1)
    for k in (0, 2, 0):
        b = torch.from_numpy(rng.normal(size=15))
        state = method.server_arrival(state, Answer(k, {"b": b}, {}, 9, 5, weight=0.1), 0.06, there)
        near(state["b"][k], b)
        near(state["w"], state["sigma"] @ state["b"] / 0.5)
    both = [Answer(k, {"b": torch.ones(15).double() * k}, {}, 0, 5) for k in (1, 2)]
    near(
        method.server_buffer(state, both, [0.1, 0.1], there)["b"][1:],
        torch.tensor([[1.0], [2.0]]).double().repeat(1, 15),
    )


BINARY = {"name": "synthetic", "samples": 400, "features": 10, "classes": 2, "contexts": 2, "separation": 4.0}


def test_on_synthetic_binary_data_related_machines_are_as_good_as_the_data_allow() -> None:
    """Eight clients of two contexts that call the same two clouds by opposite names."""
    tables = description(
        run__clients=8,
        run__rounds=12,
        algorithm={"name": "mocha-dual", "relate_every": 3},
        data=BINARY | {"partition": {"name": "by-context"}},
        training__local_steps=8,
    )
    told = run_sequentially(BuiltStudy(validate(tables), b"8 bytes.")).facts
    last = [fact for fact in told if fact[0] == "evaluations" and fact[1] == 12]
    assert sum(fact[6] for fact in last) / sum(fact[7] for fact in last) > 0.97


@pytest.mark.parametrize(
    ("method", "problem", "said"),
    [
        (MochaDual(0.0), classification(), "algorithm.lam"),
        (MochaDual(relate_every=-1), classification(), "algorithm.relate_every"),
        (MochaDual(), classification(hidden=6), "linear models alone"),
    ],
)
def test_what_cannot_work_is_refused(method: MochaDual, problem: Study, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        method.check(problem.federation)


def test_real_valued_targets_are_refused() -> None:
    tables = description(
        algorithm={"name": "mocha-dual"}, data={"name": "quadratic", "test_share": 0.0}, model={"name": "linear"}
    )
    with pytest.raises(DescriptionError, match="these data have none"):
        BuiltStudy(validate(tables), b"8 bytes.")
