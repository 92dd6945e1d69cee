"""FL+HC: FedAvg until the clustering, and in each cluster after it."""

import numpy as np
import pytest
import torch

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.flhc import FLHC
from pflsim.algorithms.local import Local
from pflsim.clustering.labels import NONE
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from tests.clusters import planted
from tests.problems import classification, least_squares
from tests.test_equivalences import near, same, some

ROUNDS = 10


@pytest.fixture(params=["least squares", "classification"])
def problem(request):
    return least_squares() if request.param == "least squares" else classification()


def where(number, N=4):
    return Round(number, tuple(range(N)), least_squares([5] * N, d=1).federation, 0.1)


def answers_of(uploads, start=0.0, sizes=None):
    begun = {"x": torch.tensor([start], dtype=torch.float64)}
    return [
        Answer(i, {"u": torch.tensor([u], dtype=torch.float64)}, begun, 0, (sizes or {}).get(i, 5))
        for i, u in sorted(uploads.items())
    ]


def begun(x=0.0, N=4):
    return {"x": torch.tensor([[x]], dtype=torch.float64), "labels": torch.zeros(N, dtype=torch.int64)}


def everybody_in(number):
    """All clients in that round, where the method asks for them, and some in the others."""
    return lambda federation, now: federation.clients if now == number else some(federation, now)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_e33_flhc_with_a_huge_theta_is_fedavg_throughout(problem, weights):
    flhc = run(FLHC(n1=3, theta=1e30, weights=weights), problem, ROUNDS, some)
    fedavg = run(FedAvg(weights), problem, ROUNDS, everybody_in(3))
    assert len(flhc.all["x"]) == 1
    near(flhc.all["x"][0].double(), fedavg.all["x"].double(), 1e-10)


def test_e33_flhc_with_theta_0_is_local_after_n1_rounds(problem):
    flhc = run(FLHC(n1=3, theta=0.0), problem, ROUNDS)
    x = run(FedAvg(), problem, 3).all["x"]
    for i in problem.federation.clients:
        w = x
        for number in range(3, ROUNDS):
            w = problem.new_task(i, number, number).sgd(w)
        near(flhc.all["x"][flhc.all["labels"][i]], w)


def test_theta_0_from_the_start_is_local(problem):
    flhc, local = run(FLHC(n1=0, theta=0.0), problem, ROUNDS), run(Local(), problem, ROUNDS)
    near(flhc.all["x"][flhc.all["labels"]], torch.stack([you["w"] for you in local.you]))


@pytest.mark.parametrize(
    ("metric", "linkage"), [("l2", "ward"), ("l2", "single"), ("l1", "complete"), ("cosine", "average")]
)
def test_planted_clusters_are_found_with_the_help_of_the_heights_and_trained_apart(metric, linkage):
    problem = planted(groups=3, each=3, apart=300.0)
    settings = {"n1": 2, "metric": metric, "linkage": linkage}
    heights = run(FLHC(theta=0.0, **settings), problem, 3).all["heights"]
    theta = float(heights[5] + heights[6]) / 2
    method = FLHC(theta=theta, **settings)
    ran = run(method, problem, ROUNDS)
    told = method.measures(ran.all, where(0))
    assert told["labels"].tolist() == [0, 1, 2] * 3 and told["clusters"] == 3
    heights = told["heights"]
    assert heights[5] < theta < heights[6], "six mergers leave three of nine"
    x = run(FedAvg(), problem, 2).all["x"]
    for k in (0, 1, 2):
        alone = x
        for number in range(2, ROUNDS):
            tasks = [problem.new_task(i, number, number) for i in (k, k + 3, k + 6)]
            alone = torch.stack([task.sgd(alone) for task in tasks]).mean(0)
        near(ran.all["x"][k], alone)


def test_in_the_round_of_the_clustering_and_in_no_other_everybody_works():
    problem, method = least_squares(), FLHC(n1=2)
    ran = run(method, problem, 5, lambda *_: [1])
    assert [sorted(ups) for ups in ran.ups] == [[1], [1], [0, 1, 2, 3], [1], [1]]


def test_clusters_are_means_by_samples_and_begin_with_the_answers_that_were_clustered():
    after = FLHC(n1=0, theta=2.0).server_step(begun(), answers_of({0: 1.0, 1: 2.0, 2: 9.0}, sizes={1: 15}), where(0))
    assert after["labels"].tolist() == [0, 0, 1, NONE]
    near(after["x"], torch.tensor([[1.75], [9.0]]).double())
    plain = FLHC(n1=0, theta=2.0, weights="uniform")
    near(
        plain.server_step(begun(), answers_of({0: 1.0, 1: 2.0}, sizes={1: 15}), where(0))["x"],
        torch.tensor([[1.5]]).double(),
    )


def test_who_was_away_at_the_clustering_is_sent_the_old_x_and_joins_the_nearest_cluster_with_its_first_answer():
    for metric, linkage, theta in (("l2", "ward", 2.0), ("l1", "average", 2.0), ("cosine", "single", 0.5)):
        method = FLHC(n1=0, theta=theta, metric=metric, linkage=linkage)
        after = method.server_step(begun(3.0), answers_of({0: 4.0, 1: 5.0, 2: -6.0}, start=3.0), where(0))
        assert float(method.server_down(after, 3, where(1))["x"]) == 3.0
        assert float(method.server_down(after, 2, where(1))["x"]) == -6.0
        later = method.server_step(after, answers_of({3: -2.0}, start=3.0), where(1))
        assert later["labels"].tolist() == [0, 0, 1, 1]
        near(later["x"], torch.tensor([[4.5], [-2.0]]).double())


def test_a_round_without_answers_puts_the_clustering_off():
    method, all = FLHC(n1=1), begun()
    assert method.server_step(all, [], where(1)) is all
    assert list(method.participants(all, where(2), [1])) == [0, 1, 2, 3]


def test_without_rounds_x_stays_until_half_of_the_clients_are_known():
    method = FLHC(n1=1, theta=2.0)
    (early,) = answers_of({0: 2.0})
    moved = method.server_arrival(begun(), early, 0.5, where(0))
    assert float(moved["x"]) == 1.0
    waiting = method.server_arrival(moved, early, 0.5, where(1))
    assert float(waiting["x"]) == 1.0 and waiting["labels"].tolist() == [0] * 4
    (second,) = answers_of({2: 8.0}, start=1.0)
    grouped = method.server_arrival(waiting, second, 0.5, where(1))
    assert grouped["labels"].tolist() == [0, NONE, 1, NONE]
    assert grouped["x"].ravel().tolist() == [1.0, 4.5]
    (third,) = answers_of({3: 9.0}, start=1.0)
    joined = method.server_arrival(grouped, third, 0.5, where(1))
    assert joined["labels"].tolist() == [0, NONE, 1, 1] and joined["x"].ravel().tolist() == [1.0, 6.75]


def test_a_buffer_moves_each_cluster_by_its_own():
    method = FLHC(n1=0, theta=2.0)
    all = method.server_step(begun(), answers_of({0: 1.0, 1: 1.0, 2: 9.0, 3: 9.0}), where(0))
    after = method.server_buffer(all, answers_of({0: 3.0, 2: 4.0, 3: 6.0}, start=1.0), [0.5, 1.0, 0.5], where(1))
    assert after["x"].ravel().tolist() == [1.0 + 0.5 * 2.0, 9.0 + (3.0 + 0.5 * 5.0) / 2]


def test_the_model_of_the_cluster_is_evaluated():
    problem = classification()
    ran = run(FLHC(), problem, 2)
    assert list(models(FLHC(), problem, ran, 0)) == ["cluster"]
    same(models(FLHC(), problem, ran, 0)["cluster"], ran.all["x"][0])
    assert "heights" not in FLHC().measures(ran.all, where(0))


@pytest.mark.parametrize("settings", [{"n1": -1}, {"theta": -0.5}, {"linkage": "ward", "metric": "cosine"}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(DescriptionError, match=f"algorithm.{next(iter(settings))}"):
        FLHC(**settings).check(least_squares().federation)


def test_heights_are_those_at_which_clusters_merged():
    after = FLHC(n1=0, linkage="single").server_step(begun(), answers_of({0: 0.0, 1: 1.0, 2: 10.0, 3: 13.0}), where(0))
    np.testing.assert_allclose(after["heights"], [1.0, 3.0, 9.0])
