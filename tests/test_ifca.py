"""IFCA: by hand, as limits, and from which models it starts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.ifca import IFCA
from pflsim.clustering.labels import NONE
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from pflsim.learning.task import Work
from tests.clusters import planted
from tests.problems import classification, least_squares
from tests.test_equivalences import near, same, some

ROUNDS = 10


@pytest.fixture(params=["least squares", "classification"])
def problem(request):
    return least_squares() if request.param == "least squares" else classification()


class Started(IFCA):
    """IFCA from given models [K, d]."""

    starts = None

    def _starts(self, federation):
        return self.starts


def started(models_, **settings):
    method = Started(K=len(models_), **settings)
    object.__setattr__(method, "starts", torch.tensor(models_, dtype=torch.float64))
    return method


def test_e31_ifca_with_one_model_is_fedavg_bit_for_bit(problem):
    ifca, fedavg = run(IFCA(K=1), problem, ROUNDS, some), run(FedAvg("uniform"), problem, ROUNDS, some)
    same(ifca.all["x"][0], fedavg.all["x"])


def test_e32_ifca_with_clusters_far_apart_that_k_means_finds_is_fedavg_in_each_of_them():
    problem = planted(groups=2, each=3)
    ran = run(IFCA(K=2, init="k-means"), problem, ROUNDS)
    labels = ran.all["labels"].tolist()
    assert labels == labels[:2] * 3 and labels[0] != labels[1]
    for group in (0, 1):
        fedavg = run(FedAvg("uniform"), problem, ROUNDS, lambda *_, group=group: [group, group + 2, group + 4])
        near(ran.all["x"][labels[group]], fedavg.all["x"])


def test_e32_ifca_from_the_right_models_is_fedavg_from_each_of_them():
    problem = planted(groups=2, each=3)
    x = [problem.new_task(i, 0, 0).sgd(problem.federation.initial) for i in (0, 1)]
    ran = run(started([one.tolist() for one in x]), problem, ROUNDS)
    for group in (0, 1):
        alone = replace(problem, federation=replace(problem.federation, initial=x[group]))
        fedavg = run(FedAvg("uniform"), alone, ROUNDS, lambda *_, group=group: [group, group + 2, group + 4])
        near(ran.all["x"][group], fedavg.all["x"])


def test_each_client_trains_the_model_that_fits_best_and_the_others_stay():
    problem = planted(groups=2, each=2, d=1, local_steps=1)
    b = [float(problem.new_task(i, 0, 0).y[0] / problem.new_task(i, 0, 0).a[0, 0]) for i in range(4)]
    h = [float(problem.new_task(i, 0, 0).a[0, 0] ** 2) for i in range(4)]
    ran = run(started([[1e6], [b[0]], [b[1]]]), problem, 1)
    assert ran.all["labels"].tolist() == [1, 2, 1, 2]
    u = [b[i % 2] - 0.05 * h[i] * (b[i % 2] - b[i]) for i in range(4)]
    np.testing.assert_allclose(ran.all["x"].ravel(), [1e6, (u[0] + u[2]) / 2, (u[1] + u[3]) / 2], rtol=1e-9)


def test_of_equally_good_models_the_first_is_trained():
    ran = run(started([[0.0, 1.0, 0.0]] * 3), least_squares(), 1)
    assert ran.all["labels"].tolist() == [0, 0, 0, 0]


def test_averaged_gradients_are_divided_by_all_participants():
    problem = planted(groups=2, each=2, step_size=0.1, weight_decay=0.5)
    starts = [problem.new_task(i, 0, 0).sgd(problem.federation.initial).tolist() for i in (0, 1)]
    ran = run(started(starts, average="gradient"), problem, 1, lambda *_: [0, 1, 2])
    x = torch.tensor(starts, dtype=torch.float64)
    g = []
    for i in (0, 1, 2):
        task = problem.new_task(i, 0, 0)
        g.append(task.grad(x[i % 2], next(task.batches(1))) + 0.5 * x[i % 2])
    near(ran.all["x"], torch.stack([x[0] - 0.1 / 3 * (g[0] + g[2]), x[1] - 0.1 / 3 * g[1]]))


def test_the_models_start_as_independent_draws_the_first_being_w0():
    problem = least_squares()
    x = IFCA(K=3).server_init(problem.federation)["x"]
    same(x[0], problem.federation.initial)
    same(x[2], problem.federation.new_initial(problem.federation.rng("model 2")))
    assert not torch.equal(x[1], x[2])


def test_perturbed_models_start_around_w0():
    federation = least_squares(d=4000).federation
    x = IFCA(K=3, init="perturbed", sigma=0.1).server_init(federation)["x"]
    same(x[0], federation.initial)
    for k in (1, 2):
        assert float((x[k] - x[0]).norm() / x[0].norm()) == pytest.approx(0.1, rel=0.05)


def test_k_means_sends_w0_alone_in_the_first_round():
    problem, method = planted(groups=2, each=3), IFCA(K=2, init="k-means")
    ran = run(method, problem, 1)
    where = Round(0, (0,), problem.federation, 0.05)
    assert method.server_down(ran.server[0], 0, where)["x"].shape == (1, 3)
    assert method.server_down(ran.server[1], 0, where)["x"].shape == (2, 3)
    assert ran.all["labels"].tolist() == [NONE] * 6, "nobody has chosen yet"


def answer(client, u, k, down, weight=1.0):
    up = {"u": torch.tensor([u], dtype=torch.float64), "k": torch.tensor([k])}
    return Answer(client, up, {"x": torch.tensor(down, dtype=torch.float64)}, 0, 5, weight)


def test_an_arrival_is_mixed_into_its_model_alone_and_a_buffer_moves_each_by_its_own():
    where = Round(1, (0, 1, 2, 3), least_squares().federation, 0.1)
    all = {"x": torch.tensor([[0.0], [10.0]], dtype=torch.float64), "labels": torch.tensor([NONE] * 4)}
    sent = [[0.0], [8.0]]
    mixed = IFCA(K=2).server_arrival(all, answer(3, 20.0, 1, sent), 0.25, where)
    assert mixed["x"].ravel().tolist() == [0.0, 12.5] and mixed["labels"].tolist() == [NONE] * 3 + [1]
    came = [answer(0, 4.0, 0, sent), answer(1, 9.0, 1, sent), answer(2, 12.0, 1, sent)]
    buffered = IFCA(K=2).server_buffer(all, came, [0.5, 1.0, 0.5], where)
    assert buffered["x"].ravel().tolist() == [2.0, 10.0 + (1.0 * 1.0 + 0.5 * 4.0) / 2]


def test_k_means_without_rounds_waits_for_half_of_the_clients_and_places_answers_that_could_not_choose():
    where = Round(0, (0, 1, 2, 3), least_squares().federation, 0.1)
    method = IFCA(K=2, init="k-means")
    all = {"x": torch.tensor([[5.0]], dtype=torch.float64), "labels": torch.tensor([NONE] * 4)}
    one = method.server_arrival(all, answer(0, 0.0, 0, [[5.0]]), 0.5, where)
    same(one["x"], all["x"])
    two = method.server_arrival(one, answer(1, 10.0, 0, [[5.0]]), 0.5, where)
    assert two["x"].ravel().tolist() == [0.0, 10.0]
    three = method.server_arrival(two, answer(2, 8.0, 0, [[5.0]]), 0.5, where)
    assert three["x"].ravel().tolist() == [0.0, 9.0]
    full = method.server_buffer(all, [answer(0, 0.0, 0, [[5.0]]), answer(1, 10.0, 0, [[5.0]])], [1.0, 1.0], where)
    assert full["x"].ravel().tolist() == [0.0, 10.0]


def test_a_buffer_of_everybody_without_staleness_is_a_round(problem):
    for average in ("model", "gradient"):
        method = IFCA(K=2, average=average)
        ran = run(method, problem, 1)
        where = Round(0, tuple(problem.federation.clients), problem.federation, problem.federation.training.step_size)
        came = [Answer(i, up, method.server_down(ran.server[0], i, where), 0, 5) for i, up in ran.ups[0].items()]
        buffered = method.server_buffer(ran.server[0], came, [1.0] * len(came), where)
        near(buffered["x"].double(), ran.all["x"].double(), 1e-6)


def test_choosing_costs_k_passes_forward_over_the_data_or_a_batch():
    problem = classification()
    task = problem.new_task(0, 0, 0)
    down = IFCA().server_down(IFCA().server_init(problem.federation), 0, Round(0, (0,), problem.federation, 0.1))
    n, trained = task.n_samples, task.work()
    assert IFCA().client_work(task, down) == trained + Work(4 * n, 0)
    assert IFCA(select_on="batch").client_work(task, down) == trained + Work(4 * 4, 0)
    assert IFCA(average="gradient").client_work(task, down) == Work(4, 4) + Work(4 * n, 0)


@pytest.mark.parametrize("settings", [{"select_on": "batch"}, {"average": "gradient"}])
def test_the_declared_work_is_done_with_other_settings_too(settings):
    run(IFCA(**settings), classification(), 2)


def test_the_model_that_is_evaluated_is_chosen_on_training_data_or_where_that_is_asked_for_on_the_test():
    problem = classification(local_steps=40)
    ran = run(IFCA(K=3), problem, 3)
    for i in problem.federation.clients:
        task = problem.new_task(i, 9, 9)
        for split in ("train", "test"):
            losses = [task.evaluate(x, split).loss_sum for x in ran.all["x"]]
            evaluated = models(IFCA(K=3, choose_on=split), problem, ran, i)
            assert list(evaluated) == ["cluster"]
            same(evaluated["cluster"], ran.all["x"][int(np.argmin(losses))])


def test_measures_tell_who_trains_which_model():
    ran = run(IFCA(K=2, init="k-means"), planted(groups=2, each=2), 2)
    told = IFCA().measures(ran.all, None)
    assert told["clusters"] == 2 and told["labels"].tolist() == told["labels"][:2].tolist() * 2


def test_models_that_would_all_start_alike_are_refused():
    federation = replace(least_squares().federation, new_initial=lambda _: least_squares().federation.initial)
    with pytest.raises(DescriptionError, match="starts all models alike"):
        IFCA().check(federation)
    assert IFCA(init="k-means").check(federation) == []
    assert IFCA(K=1).check(federation) == []


@pytest.mark.parametrize("settings", [{"K": 0}, {"sigma": 0.0}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(DescriptionError, match=f"algorithm.{next(iter(settings))}"):
        IFCA(**settings).check(least_squares().federation)


def test_a_gradient_knows_no_momentum():
    with pytest.raises(DescriptionError, match=r"momentum = 0"):
        IFCA(average="gradient").check(least_squares(momentum=0.5).federation)
