"""AFL: the projection onto the simplex, one round by hand, and the limit in which it is FedAvg."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pflsim.algorithms.afl import AFL
from pflsim.algorithms.fedavg import FedAvg
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from pflsim.learning.simplex import onto_simplex
from tests.mixing import ROUNDS, close, near, some, two_clients
from tests.problems import classification, least_squares, quadratics

VECTORS = st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=1, max_size=12)


@settings(deadline=None)
@given(VECTORS, st.floats(-50, 50))
def test_e19_the_projection_lies_in_the_simplex_is_idempotent_and_ignores_a_constant(
    values: list[float], constant: float
) -> None:
    """E19."""
    v = torch.tensor(values, dtype=torch.float64)
    q = onto_simplex(v)
    assert float(q.min()) >= 0.0
    near(q.sum(), torch.tensor(1.0).double())
    near(onto_simplex(q), q)
    near(onto_simplex(v + constant), q)


@settings(deadline=None)
@given(VECTORS, st.integers(0, 1000))
def test_e19_no_other_point_of_the_simplex_is_nearer(values: list[float], seed: int) -> None:
    """E19: for every p in the simplex, (v - q) (p - q) <= 0."""
    v, rng = torch.tensor(values, dtype=torch.float64), np.random.default_rng(seed)
    q = onto_simplex(v)
    corners = torch.eye(len(v)).double()
    inside = torch.from_numpy(rng.dirichlet(np.ones(len(v)), 5))
    assert float(((torch.cat([corners, inside]) - q) @ (v - q)).max()) <= 1e-9


def test_e19_equal_losses_keep_the_mixture() -> None:
    """E19: all f_i alike, whatever their q_i."""
    problem = quadratics([np.eye(1)] * 3, [np.ones(1)] * 3)
    there = Round(0, (0, 1, 2), problem.federation, 0.05)
    q = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    answers = [Answer(k, {"u": torch.ones(1), "loss": torch.tensor([2.0])}, {}, 0, 5) for k in range(3)]
    near(AFL(gamma=7.0).server_step({"x": torch.zeros(1), "q": q}, answers, there)["q"], q)


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("normalise", [None, True, False])
@pytest.mark.parametrize("loss", ["all", "batch", "last"])
def test_e18_a_mixture_that_never_changes_is_fedavg_weighed_by_samples(local: bool, normalise: Any, loss: Any) -> None:
    """E18: gamma = 0, all clients."""
    steps = 4 if local else 1
    afl = run(AFL(0.0, local, loss, normalise), least_squares(), ROUNDS)
    near(afl.all["x"], run(FedAvg(), least_squares(local_steps=steps), ROUNDS).all["x"])


def test_two_rounds_by_hand() -> None:
    problem = two_clients(step_size=0.1)
    ran = run(AFL(gamma=0.2), problem, 2)
    x, q = 0.1, np.array([0.5, 0.5])
    for _ in range(2):
        h, b = np.array([2.0, 4.0]), np.array([1.0, -1.0])
        L, u = 0.5 * h * (x - b) ** 2, x - 0.1 * h * (x - b)
        x = x - float(q @ (x - u))
        q = q + 0.2 * L
        q = q - (q.sum() - 1) / 2  # both stay above 0
    assert q.min() > 0.05
    close(ran.all["x"], x)
    close(ran.all["q"], *q)
    found: Any = models(AFL(), problem, ran, 0)
    assert list(found) == ["global"]
    assert AFL().measures(ran.all, Round(1, (), problem.federation, 0.1))["q"] is ran.all["q"]


def test_it_finds_the_model_that_is_good_for_the_worst_client() -> None:
    """f = (w - 1)^2 and 2 (w + 1)^2 are equal at sqrt 2 (w + 1) = 1 - w, where their maximum is least."""
    ran = run(AFL(gamma=0.02), two_clients(step_size=0.02), 4000)
    near(ran.all["x"], torch.tensor([(1 - 2**0.5) / (1 + 2**0.5)]).double(), 1e-3)
    fedavg = run(FedAvg(), two_clients(step_size=0.02, local_steps=1), 4000)
    assert float(fedavg.all["x"]) < -0.3  # the mean of both would be -1/3


@pytest.mark.parametrize(("loss", "expected"), [("all", "x"), ("batch", "first at x"), ("last", "last at u")])
def test_which_loss_a_client_tells(loss: Any, expected: str) -> None:
    problem = classification(batch=4)
    task: Any = problem.new_task(1, 0, 0)
    x = problem.federation.initial
    up = AFL(local=True, loss=loss).client_step({}, {"x": x}, task)[1]
    batches = list(task.batches(task.steps))
    by_hand = {
        "x": task.loss(x),
        "first at x": task.batch_loss(x, batches[0]),
        "last at u": task.batch_loss(up["u"], batches[-1]),
    }
    assert float(up["loss"]) == pytest.approx(by_hand[expected], abs=1e-6)
    assert len({round(value, 6) for value in by_hand.values()}) == 3


@pytest.mark.parametrize(("normalise", "divisor"), [(None, 0.5), (True, 0.5), (False, 1.0)])
def test_where_some_answer_the_step_is_divided_by_their_sum_unless_it_shall_not(
    normalise: bool | None, divisor: float
) -> None:
    ran = run(AFL(gamma=0.0, normalise=normalise), two_clients(step_size=0.1), 1, draw=lambda *_: [1])
    close(ran.all["x"], 0.1 - 0.5 / divisor * 0.1 * 4 * (0.1 + 1))


def test_a_client_that_counts_for_nothing_leaves_the_model_and_may_count_again() -> None:
    problem = two_clients()
    state = {"x": torch.tensor([3.0]), "q": torch.tensor([1.0, 0.0]).double()}
    came = Answer(1, {"u": torch.tensor([9.0]), "loss": torch.tensor([2.0])}, {}, 0, 5)
    after = AFL(gamma=0.1).server_step(state, [came], Round(0, (1,), problem.federation, 0.1))
    close(after["x"], 3.0)
    close(after["q"], 0.9, 0.1)


def test_no_client_falls_below_the_floor() -> None:
    problem = quadratics([np.eye(1)] * 3, [np.array([b]) for b in (0.0, 0.0, 50.0)])
    ran = run(AFL(gamma=1.0, floor=0.001), problem, 1)
    close(ran.all["q"], *(np.array([0.001, 0.001, 1.0]) / 1.002))
    close(run(AFL(gamma=1.0), problem, 1).all["q"], 0.0, 0.0, 1.0)


def test_an_arrival_counts_n_times_its_share_and_lifts_it_by_its_staleness() -> None:
    problem = two_clients()
    there = Round(0, (), problem.federation, 0.1)
    state = {"x": torch.tensor([1.0]), "q": torch.tensor([0.4, 0.6], dtype=torch.float64)}
    up = {"u": torch.tensor([2.0]), "loss": torch.tensor([0.5])}
    came = Answer(1, up, {"x": torch.tensor([1.5])}, 3, 5, weight=0.5)
    after = AFL(gamma=0.2).server_arrival(state, came, 0.3, there)
    close(after["x"], 1.0 + 2 * 0.6 * 0.3, atol=1e-6)
    close(after["q"], 0.4 - 0.025, 0.6 + 0.025)
    close(AFL().server_arrival(state, came, 0.9, there)["x"], 2.0)  # never beyond u
    close(AFL().server_buffer(state, [came], [0.3], there)["x"], 1.0 + 2 * 0.6 * 0.3 * 0.5, atol=1e-6)


def test_a_full_buffer_without_staleness_is_a_round() -> None:
    problem = least_squares()
    rng = np.random.default_rng(1)
    x, there = problem.federation.initial, Round(0, (0, 1, 2, 3), problem.federation, 0.1)
    state = AFL().server_init(problem.federation)
    answers = [
        Answer(k, {"u": torch.from_numpy(rng.normal(size=3)), "loss": torch.tensor([0.1 * k])}, {"x": x}, 0, 5)
        for k in range(4)
    ]
    step = AFL().server_step(state, answers, there)
    buffer = AFL().server_buffer(state, answers, [1.0] * 4, there)
    near(step["x"], buffer["x"])
    near(step["q"], buffer["q"])


@pytest.mark.parametrize("wrong", [{"gamma": -1.0}, {"gamma": float("inf")}, {"floor": 0.25}, {"floor": -0.1}])
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DescriptionError, match=f"algorithm.{next(iter(wrong))}"):
        AFL(**wrong).check(least_squares().federation)
    assert AFL(floor=0.2).check(least_squares().federation) == []


def test_with_half_of_the_clients_the_model_follows_the_samples_of_those_who_came() -> None:
    afl = run(AFL(gamma=0.0), least_squares(), ROUNDS, some)
    near(afl.all["x"], run(FedAvg(), least_squares(local_steps=1), ROUNDS, some).all["x"])
