"""L2SGD and L2SGD+: the coins, the mix and the local step by hand, their limits, and that no variance is left."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from nodes.sequential import run_sequentially
from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.l2sgd import L2SGD
from pflsim.algorithms.local import Local
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors
from pflsim.learning.task import Task, Work
from pflsim.spec import validate
from pflsim.study import Study as BuiltStudy
from tests.launching import description
from tests.mixing import ROUNDS, close, near, personal, same, some, two_clients
from tests.problems import Study, classification, least_squares, quadratics


def coins(problem: Study, number: int, p: float) -> tuple[int, int]:
    down = L2SGD(p=p).server_down({"xbar": torch.zeros(1)}, 0, Round(number, (), problem.federation, 0.05))
    mixes, steps, clients = down["coins"].tolist()
    assert clients == len(problem.federation.clients)
    return mixes, steps


class ByCoins(Local):
    """Local, which takes the steps that L2SGD's coins give it, of a size of its own."""

    p = 0.2

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"coins": L2SGD(p=self.p).server_down({"xbar": torch.zeros(1)}, client, round)["coins"]}

    def client_work(self, task: Task, down: Tensors) -> Work:
        samples = task.training.samples(task.n_samples, int(down["coins"][1]))
        return Work(samples, samples)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        step_size = task.step_size / (1 - self.p)
        return {"w": task.sgd(you["w"], steps=int(down["coins"][1]), step_size=step_size)}, {}


class FedAvgByCoins(FedAvg):
    """FedAvg with those steps."""

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return all | ByCoins().server_down(all, client, round)

    def client_work(self, task: Task, down: Tensors) -> Work:
        return ByCoins().client_work(task, down)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return {}, {"u": ByCoins().client_step({"w": down["x"]}, down, task)[0]["w"]}


class Apart(L2SGD):
    """Starts from models that differ."""

    def client_init(self, client: Client) -> Tensors:
        return super().client_init(client) | {"x": client.initial * (client.id + 1)}

    def server_init(self, federation: Federation) -> Tensors:
        x = torch.stack([federation.initial * (k + 1) for k in federation.clients])
        return {"x": x, "xbar": x.mean(0)}


@pytest.mark.parametrize("make", [least_squares, classification])
def test_e22_without_its_pull_it_is_local_on_the_steps_with_coin_0(make: Any) -> None:
    """E22, bit for bit: the step size is eta / (1 - p), and a mix is no step at all."""
    problem = make()
    l2sgd, local = run(L2SGD(lam=0.0), problem, ROUNDS, some), run(ByCoins(), problem, ROUNDS, some)
    same(personal(l2sgd, "x"), personal(local, "w"))


def test_e23_with_a_full_pull_it_is_fedavg_with_a_geometric_number_of_steps() -> None:
    """E23: th = 1."""
    problem = least_squares()
    l2sgd = run(L2SGD(lam=0.2 / 0.05), problem, ROUNDS)
    near(l2sgd.all["xbar"], run(FedAvgByCoins("uniform"), problem, ROUNDS).all["x"])


def test_e23_after_a_mix_with_a_full_pull_every_model_is_the_mean() -> None:
    problem = least_squares()
    for mixes in (1, 3):
        down = {"xbar": torch.tensor([1.0, 2.0, 3.0]).double(), "coins": torch.tensor([mixes, 0, 4])}
        task: Any = problem.new_task(0, 0, 0)
        you, up = L2SGD(lam=4.0).client_step({"x": problem.federation.initial}, down, task)
        near(you["x"], down["xbar"])
        same(up["x"], you["x"])


@pytest.mark.parametrize("lam", [0.3, 7.0])
def test_e24_a_mix_preserves_the_mean_and_mixes_alone_lead_everybody_there(lam: float) -> None:
    """E24: p = 1; with lambda = 7 it overshoots nothing, th = 0.35."""
    problem = least_squares()
    ran = run(Apart(lam=lam, p=1.0), problem, 60)
    start = ran.server[0]["xbar"]
    for state in ran.server:
        near(state["xbar"], start)
    spread = (personal(ran, "x") - start).abs().max()
    before = (ran.server[0]["x"] - start).abs().max()
    near(spread, before * (1 - 0.05 * lam) ** 60, 1e-10)


@pytest.mark.parametrize("make", [least_squares, classification])
def test_e24_without_mixes_it_is_local(make: Any) -> None:
    """E24: p = 0, bit for bit."""
    problem = make()
    same(personal(run(L2SGD(p=0.0), problem, ROUNDS, some), "x"), personal(run(Local(), problem, ROUNDS, some), "w"))


def step(method: L2SGD, you: Tensors, xbar: torch.Tensor, mixes: int, steps: int, task: Any) -> Tensors:
    return method.client_step(you, {"xbar": xbar, "coins": torch.tensor([mixes, steps, 4])}, task)[0]


@pytest.mark.parametrize("scale_N", [False, True])
def test_e25_both_coins_together_expect_the_gradient_of_the_objective_for_any_table(scale_N: bool) -> None:
    """E25: (grad f_i + lambda (x_i - xbar)) / s, over the coin and the batch that is drawn."""
    problem, p, lam, eta = least_squares([8, 7, 5, 5], batch=4), 0.3, 1.7, 0.05
    method = L2SGD(lam, p, variance_reduced=True, scale_N=scale_N)
    rng = np.random.default_rng(1)
    x, xbar, Psi = (torch.from_numpy(rng.normal(size=3)) for _ in range(3))
    you = {"x": x, "J": torch.from_numpy(rng.normal(size=(2, 3))), "Psi": Psi}
    mean_of_local, seen = torch.zeros(3).double(), set[int]()
    for visit in range(20):  # until both batches of client 1, of 4 and 3 samples, were drawn
        task: Any = problem.new_task(1, visit, 0)
        after = step(method, you, xbar, 0, 1, task)
        (j,) = [j for j in (0, 1) if not torch.equal(after["J"][j], you["J"][j])]
        if j not in seen:
            seen.add(j)
            mean_of_local += (x - after["x"]) / eta / 2
    assert seen == {0, 1}
    of_mix = (x - step(method, you, xbar, 1, 0, task)["x"]) / eta
    whole = task.a.T @ (task.a @ x - task.y) / 7
    near((1 - p) * mean_of_local + p * of_mix, (whole + lam * (x - xbar)) / (4 if scale_N else 1))


def test_e25_with_the_true_table_both_coins_give_the_same_step() -> None:
    """E25: on full batches no variance is left, and the table stays."""
    problem, p, lam, eta = least_squares(batch=100), 0.3, 1.7, 0.05
    method = L2SGD(lam, p, variance_reduced=True)
    task: Any = problem.new_task(0, 0, 0)
    x, xbar = problem.federation.initial, torch.tensor([1.0, -1.0, 0.5]).double()
    g = task.a.T @ (task.a @ x - task.y) / task.n_samples
    you = {"x": x, "J": g[None], "Psi": lam * (x - xbar)}
    for after in (step(method, you, xbar, 1, 0, task), step(method, you, xbar, 0, 1, task)):
        near((x - after["x"]) / eta, g + lam * (x - xbar))
        near(after["J"], you["J"])
        near(after["Psi"], you["Psi"])


def optimum(h: tuple[float, ...], b: tuple[float, ...], lam: float) -> np.ndarray:
    """Of (1 / 2) sum_i h_i (x_i - b_i)^2 + (lambda / 2) sum_i (x_i - xbar)^2."""
    N = len(h)
    A = np.diag(np.array(h)) + lam * (np.eye(N) - 1 / N)
    return np.linalg.solve(A, np.array(h) * np.array(b))


def test_with_variance_reduced_it_comes_to_rest_in_the_optimum_and_without_it_does_not() -> None:
    problem = two_clients(step_size=0.02)
    goal = torch.from_numpy(optimum((2.0, 4.0), (1.0, -1.0), 1.0))
    reduced, plain = (run(L2SGD(1.0, 0.4, kind), problem, 1500) for kind in (True, False))
    near(personal(reduced, "x").ravel(), goal, 1e-9)
    assert (personal(plain, "x").ravel() - goal).abs().max() > 1e-3


@pytest.mark.parametrize("scale_N", [False, True])
def test_two_rounds_by_hand(scale_N: bool) -> None:
    problem = two_clients(step_size=0.1)
    lam, p, s = 1.5, 0.4, 2 if scale_N else 1
    ran = run(L2SGD(lam, p, scale_N=scale_N), problem, 2)
    x, xbar, th = [0.1, 0.1], 0.1, 0.1 * lam / (s * p)
    for number in range(2):
        mixes, steps = coins(problem, number, p)
        assert mixes >= 1 and steps >= 1
        for i, (h, b) in enumerate(((2.0, 1.0), (4.0, -1.0))):
            for _ in range(mixes):
                x[i] = (1 - th) * x[i] + th * xbar
            for _ in range(steps):
                x[i] -= 0.1 / (s * (1 - p)) * h * (x[i] - b)
        xbar = sum(x) / 2
    close(personal(ran, "x"), *x)
    close(ran.all["xbar"], xbar)
    offered: Any = models(L2SGD(lam, p), problem, ran, 1)
    assert list(offered) == ["personalised", "global"]
    close(offered["personalised"], x[1])
    close(offered["global"], xbar)


def test_of_a_client_that_is_not_drawn_the_last_known_model_counts_and_it_does_not_mix() -> None:
    problem = two_clients(step_size=0.1)
    ran = run(L2SGD(), problem, 2, draw=lambda *_: [0])
    close(ran.you[1]["x"], 0.1)
    close(ran.all["xbar"], (float(ran.you[0]["x"]) + 0.1) / 2)


@pytest.mark.parametrize(("p", "mixes", "steps"), [(0.2, 1 / 0.8, 1 / 0.2), (0.7, 1 / 0.3, 1 / 0.7)])
def test_the_coins_of_a_round_are_geometric_and_recorded(p: float, mixes: float, steps: float) -> None:
    problem = least_squares()
    thrown = np.array([coins(problem, number, p) for number in range(4000)])
    np.testing.assert_allclose(thrown.mean(0), [mixes, steps], rtol=0.05)
    assert thrown.min() == 1
    there = Round(3, (), problem.federation, 0.05)
    assert L2SGD(p=p).measures({}, there) == {"mixes": thrown[3, 0], "local_steps": thrown[3, 1]}
    assert L2SGD(p=0.0).measures({}, there) == {}
    of_plus = [L2SGD(p=p, variance_reduced=True)._coins(replace(there, number=k)) for k in range(4000)]
    assert {mixes for mixes, _ in of_plus} == {1}
    np.testing.assert_allclose(np.mean([steps for _, steps in of_plus]), 1 / p - 1, rtol=0.1)


def test_a_visit_takes_as_many_of_its_steps_as_the_time_allows() -> None:
    problem = classification()
    task: Any = replace(problem.new_task(0, 0, 0), limit=2)
    down = {"xbar": problem.federation.initial, "coins": torch.tensor([1, 7, 5])}
    method = L2SGD()
    found = method.client_step(method.client_init(problem.client(0)), down, task)[0]["x"]
    same(found, task.sgd(problem.federation.initial, steps=2, step_size=0.05 / 0.8))


@pytest.mark.parametrize("budget", ["local_s", "partial"])
def test_time_that_is_enough_cuts_no_visit_to_the_usual_number_of_steps(budget: str) -> None:
    """The coins give some visits more steps than `training.local_steps`; a budget cuts only what does not fit."""

    def run_of(seconds: float | None) -> tuple[str, list[int]]:
        tables = description(
            algorithm={"name": "l2sgd", "p": 0.2},
            devices={"kind": "constant", "flops_per_second": 1e6, "server_flops_per_second": 1e9},
            links="ideal",
        )
        if budget == "local_s" and seconds is not None:
            tables = description(tables, training__local_s=seconds)
        if budget == "partial":
            deadline = {"kind": "deadline", "cohort": 4, "over": 1.0, "late": "partial"}
            tables = description(tables, schedule=deadline | {"deadline_s": seconds or 1e6})
        played = run_sequentially(BuiltStudy(validate(tables), b"8 bytes."))
        spans = [fact[4] - fact[3] for fact in played.facts if fact[0] == "spans" and fact[2] == "compute"]
        return played.finished()["digest"], spans

    step_ns = 10 * 3 * 2 * 20 * 4 * 1000  # 10 samples, forward and backward, through 20 features and 4 classes
    whole, spans = run_of(None)
    assert max(spans) >= 4 * step_ns  # the usual number is 3
    assert run_of(100.0) == (whole, spans)
    cut, cut_spans = run_of(2.5 * step_ns / 1e9)
    assert cut != whole and max(cut_spans) == 2 * step_ns


def test_an_arrival_replaces_its_model_whatever_its_age() -> None:
    problem = quadratics([np.eye(1)] * 3, [np.ones(1)] * 3)
    there = Round(0, (), problem.federation, 0.05)
    state = {"x": torch.tensor([[1.0], [2.0], [6.0]]), "xbar": torch.tensor([3.0])}
    came = Answer(1, {"x": torch.tensor([5.0])}, {}, 9, 5, weight=0.1)
    for after in (
        L2SGD().server_arrival(state, came, 0.06, there),
        L2SGD().server_buffer(state, [replace(came, up={"x": torch.tensor([7.0])}), came], [0.1, 0.1], there),
    ):
        close(after["x"], 1.0, 5.0, 6.0)
        close(after["xbar"], 4.0)


@pytest.mark.parametrize(
    ("settings", "training", "said"),
    [
        ({"lam": -0.1}, {}, "algorithm.lam"),
        ({"p": 1.1}, {}, "algorithm.p"),
        ({"p": float("nan")}, {}, "algorithm.p"),
        ({"p": 0.0, "variance_reduced": True}, {}, "algorithm.p"),
        ({"p": 1.0, "variance_reduced": True}, {}, "algorithm.p"),
        ({"lam": 8.0}, {}, r"eta lambda / p = 2 must be below 2"),
        ({"lam": 32.0, "scale_N": True}, {}, r"eta lambda / \(N p\) = 2 must be below 2"),
        ({"variance_reduced": True}, {"momentum": 0.9}, "training.momentum"),
    ],
)
def test_what_cannot_work_is_refused(settings: Any, training: Any, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        L2SGD(**settings).check(least_squares(**training).federation)


def test_beyond_a_convex_combination_there_is_a_warning() -> None:
    (warning,) = L2SGD(lam=6.0).check(least_squares().federation)
    assert "overshoots" in warning
    assert L2SGD(lam=4.0).check(least_squares().federation) == []
    assert L2SGD(lam=9.0, allow_unstable=True).check(least_squares().federation)
