"""CGPFL and CGPFL-Heur: by hand, as limits, and what they keep."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pflsim.algorithms import cgpfl
from pflsim.algorithms.cgpfl import CGPFL
from pflsim.algorithms.local import Local
from pflsim.algorithms.pfedme import PFedMe
from pflsim.clustering.labels import NONE
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer
from tests.clusters import answers_of, clients_at, planted, round_of, state
from tests.problems import classification, least_squares
from tests.test_equivalences import all_of, near, same, some

ROUNDS = 10
SETTINGS = {"lam": 4.0, "eta_p": 0.03, "inner_steps": 3, "mu": 0.01}


def first(*numbers):
    return lambda *_: list(numbers)


@pytest.fixture(params=["least squares", "classification"])
def problem(request):
    return least_squares() if request.param == "least squares" else classification()


@pytest.mark.parametrize("start", ["persist", "round", "step"])
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_e01_cgpfl_with_one_context_is_pfedme_bit_for_bit(problem, start, alpha):
    one = run(CGPFL(K=1, alpha=alpha, theta_init=start, **SETTINGS), problem, ROUNDS)
    pfedme = run(PFedMe(beta=alpha, theta_init=start, **SETTINGS), problem, ROUNDS)
    same(one.all["omega"][0], pfedme.all["x"])
    same(all_of(one, "theta"), all_of(pfedme, "theta"))


def test_e01_holds_for_the_clients_that_are_drawn_too(problem):
    one, pfedme = (
        run(m, problem, ROUNDS, some) for m in (CGPFL(K=1, **SETTINGS), PFedMe(theta_init="persist", **SETTINGS))
    )
    same(one.all["omega"][0], pfedme.all["x"])


def test_e02_cgpfl_with_a_context_for_everybody_is_everybody_alone_bit_for_bit(problem):
    N = len(problem.federation.clients)
    ran = run(CGPFL(K=N, theta_init="round", **SETTINGS), problem, ROUNDS)
    for i in range(N):
        alone = run(PFedMe(theta_init="round", **SETTINGS), problem, ROUNDS, first(i))
        same(ran.all["omega"][ran.all["labels"][i]], alone.all["x"])
        same(ran.you[i]["theta"], alone.you[i]["theta"])


def test_e03_the_printed_outer_step_is_the_other_one_with_another_step_size():
    beta, lam, N = 0.3, 4.0, 4
    printed = run(CGPFL(K=2, outer="2/N", **SETTINGS), least_squares(step_size=beta), ROUNDS)
    ours = run(CGPFL(K=2, **SETTINGS), least_squares(step_size=2 * beta / (N * lam)), ROUNDS)
    near(printed.all["omega"], ours.all["omega"])
    near(all_of(printed, "theta"), all_of(ours, "theta"))


def test_e04_cgpfl_without_its_pull_leaves_the_server_alone_and_trains_theta_locally():
    problem = least_squares()
    ran = run(CGPFL(lam=0.0, mu=0.0, inner_steps=1, eta_p=0.05), problem, ROUNDS)
    near(ran.all["omega"], problem.federation.initial.repeat(4, 1))
    near(all_of(ran, "theta"), all_of(run(Local(), problem, ROUNDS), "w"))
    assert set(ran.all["labels"].tolist()) == {0}, "equal uploads are one cluster; the others are inactive"


def test_e06_the_new_centres_are_w_p_and_p_has_columns_that_add_up_to_1():
    problem = planted(groups=3, each=4, apart=3.0)
    ran = run(CGPFL(K=3, eta_p=0.05), problem, 4)
    labels, W = ran.all["labels"].numpy(), torch.stack([ran.ups[-1][i]["w"] for i in range(12)]).numpy().T
    J = np.equal.outer(np.arange(3), labels).astype(float)
    P = (J / J.sum(1, keepdims=True)).T
    np.testing.assert_allclose(P.sum(0), 1.0, atol=1e-12)
    np.testing.assert_allclose(J @ P, np.eye(3), atol=1e-12)
    assert (np.count_nonzero(P, axis=1) == 1).all()
    np.testing.assert_allclose(ran.all["omega"].numpy().T, W @ P, atol=1e-12)


class Shuffling:
    """k-means whose labels are renamed, by another permutation each time."""

    def __init__(self, found):
        self._found, self._times = found, 0

    def __call__(self, points, K, rng, **more):
        self._times += 1
        clusters = self._found(points, K, rng, **more)
        return replace(clusters, labels=np.roll(np.arange(K), self._times)[clusters.labels])


@pytest.mark.parametrize(("alpha", "align"), [(1.0, True), (1.0, False), (0.5, True)])
def test_e07_it_does_not_matter_how_kmeans_numbers_its_clusters(monkeypatch, alpha, align):
    method, problem = CGPFL(K=3, alpha=alpha, align=align, eta_p=0.05), planted(groups=3, each=2)
    plain = run(method, problem, ROUNDS)
    monkeypatch.setattr(cgpfl, "kmeans", Shuffling(cgpfl.kmeans))
    shuffled = run(method, problem, ROUNDS)
    near(all_of(plain, "theta"), all_of(shuffled, "theta"))
    near(plain.all["omega"][plain.all["labels"]], shuffled.all["omega"][shuffled.all["labels"]])


def test_e07_but_without_alignment_alpha_below_1_mixes_what_does_not_belong_together(monkeypatch):
    method, problem = CGPFL(K=3, alpha=0.5, align=False, eta_p=0.05), planted(groups=3, each=2)
    plain = run(method, problem, ROUNDS)
    monkeypatch.setattr(cgpfl, "kmeans", Shuffling(cgpfl.kmeans))
    shuffled = run(method, problem, ROUNDS)
    assert not torch.allclose(all_of(plain, "theta"), all_of(shuffled, "theta"), atol=1.0)


def test_cgpfl_moves_theta_then_w_then_omega():
    lam, eta_p, eta, mu, alpha = 4.0, 0.05, 0.1, 0.5, 0.5
    method = CGPFL(K=2, lam=lam, eta_p=eta_p, inner_steps=2, mu=mu, alpha=alpha)
    ran = run(method, clients_at(5.0, 6.0, -5.0, step_size=eta), 2)
    b, theta, omega, context = (5.0, 6.0, -5.0), [0.1] * 3, [0.1] * 2, None
    for _ in range(2):
        w = [0.1] * 3 if context is None else [omega[k] for k in context]
        for i in range(3):
            for _ in range(2):
                theta[i] -= eta_p * ((theta[i] - b[i]) + lam * (theta[i] - w[i]) + mu * theta[i])
            w[i] -= eta * lam * (w[i] - theta[i])
        context = (0, 0, 1)
        omega = [
            (1 - alpha) * omega[0] + alpha * (w[0] + w[1]) / 2,
            (1 - alpha) * omega[1] + alpha * w[2],
        ]
    labels = ran.all["labels"].tolist()
    assert labels[0] == labels[1] != labels[2]
    np.testing.assert_allclose(ran.all["omega"][labels].ravel(), [omega[k] for k in context], atol=1e-12)
    np.testing.assert_allclose(all_of(ran, "theta").ravel(), theta, atol=1e-12)


@pytest.mark.parametrize(("outer", "beta"), [("lambda", 0.4), ("2/N", 0.2 / 3)])
def test_what_theorem_4_1_is_about_is_measured_from_the_uploads_by_hand(outer, beta):
    """Gaps -1 and -2 in context 0 and 3 in context 1, of a single outer step."""
    problem, method = clients_at(0.0, 0.0, 0.0), CGPFL(K=2, lam=4.0, outer=outer)
    assert problem.federation.training.local_steps == 1
    answers = answers_of(1.0 * beta, 2.0 * beta, -3.0 * beta)
    told = method.measures(method.server_step(state([0.0, 10.0], [0, 0, 1]), answers, round_of(problem)), None)
    assert told["gradient_sq"] == pytest.approx((6.0**2 + 12.0**2) / 2)
    assert told["gap_sq"] == pytest.approx((1 + 4 + 9) / 3)
    assert told["kmeans_iterations"] == 1, "the first one changes nothing"
    assert told["kmeans_cost"] == pytest.approx(2 * (0.5 * beta) ** 2 / 3)
    np.testing.assert_allclose(told["distances"], [[0, 4.5 * beta], [4.5 * beta, 0]])


def test_a_gap_is_the_distance_from_omega_to_theta_after_one_outer_step_and_unknown_before_a_round():
    problem, method = clients_at(5.0, 6.0, -5.0), CGPFL(K=2, lam=4.0, eta_p=0.05)
    assert not method.measures(method.server_init(problem.federation), None).keys() & {"gap_sq", "kmeans_cost"}
    once, twice = (run(method, problem, rounds) for rounds in (1, 2))
    sent = once.all["omega"][once.all["labels"]].ravel()
    exact = float((sent - all_of(twice, "theta").ravel()).square().mean())
    assert method.measures(twice.all, None)["gap_sq"] == pytest.approx(exact)


def test_who_is_not_drawn_keeps_its_context_and_who_never_was_gets_the_mean_of_all():
    problem = clients_at(0.0, 1.0, 9.0, 0.0)
    after = CGPFL(K=2).server_step(state([0.5, 9.0], [0, 0, 1, NONE]), answers_of(2.0), round_of(problem))
    assert after["labels"].tolist() == [0, 0, 1, NONE]
    assert after["omega"].ravel().tolist() == [2.0, 9.0], "the mean is of those who answered"
    sent = [float(CGPFL(K=2).server_down(after, i, round_of(problem))["omega"]) for i in range(4)]
    assert sent == [2.0, 2.0, 9.0, 5.5]


def test_a_cluster_without_members_is_sent_to_nobody_and_stays():
    where = round_of(clients_at(1.0, 1.0, 4.0))
    all = CGPFL(K=3).server_step(state([0.1] * 3, [NONE] * 3), answers_of(1.0, 1.0, 4.0), where)
    assert all["omega"].ravel().tolist() == [1.0, 4.0, 0.1]
    newcomer = {**all, "labels": torch.tensor([0, 1, NONE])}
    assert float(CGPFL(K=3).server_down(newcomer, 2, where)["omega"]) == 2.5


def test_the_table_clusters_the_last_uploads_of_everybody():
    problem = clients_at(0.0, 1.0, 9.0, 0.0)
    method = CGPFL(K=2, cluster_on="table")
    all = method.server_step(state([0.1, 0.1], [NONE] * 4), answers_of(0.0, 1.0, 9.0), round_of(problem))
    all = method.server_step(all, answers_of(2.0), round_of(problem))
    omega = all["omega"].ravel().tolist()
    assert sorted(omega) == [1.5, 9.0] and all["labels"][3] == NONE
    aged = replace(method, max_age=1).server_step(all, answers_of(2.0), round_of(problem))
    assert aged["omega"][all["labels"][2]] == 9.0


def test_late_answers_count_less_in_a_mean_and_in_a_buffer():
    problem = clients_at(0.0, 1.0)
    start, came = state([2.0], [0, 0]), answers_of(0.0, 4.0, weights=[1.0, 0.5])
    assert float(CGPFL(K=1).server_step(start, came, round_of(problem))["omega"]) == pytest.approx(4.0 * 0.5 / 1.5)
    buffered = CGPFL(K=1, alpha=0.5).server_buffer(start, came, [1.0, 0.5], round_of(problem))
    assert float(buffered["omega"]) == pytest.approx(2.0 + 0.5 / 2 * (1.0 * -2.0 + 0.5 * 2.0))


def test_a_full_buffer_without_staleness_is_a_round():
    problem = planted(groups=2, each=2)
    ran = run(CGPFL(K=2, alpha=0.6), problem, 2)
    where = round_of(problem)
    came = [Answer(i, up, CGPFL(K=2).server_down(ran.all, i, where), 0, 1) for i, up in ran.ups[-1].items()]
    step, buffered = (
        CGPFL(K=2, alpha=0.6).server_step(ran.all, came, round_of(problem)),
        CGPFL(K=2, alpha=0.6).server_buffer(ran.all, came, [1.0] * 4, round_of(problem)),
    )
    near(step["omega"], buffered["omega"])
    same(step["labels"], buffered["labels"])


def test_arrivals_wait_for_the_first_clusters_then_join_the_nearest_and_are_clustered_anew_now_and_then():
    problem = clients_at(0.0, 1.0, 9.0, 8.0)
    where, method = round_of(problem), CGPFL(K=2)
    all, (a, b, c, d) = method.server_init(problem.federation), answers_of(0.0, 9.0, 5.0, 1.0)
    waiting = method.server_arrival(all, a, 0.6, where)
    same(waiting["omega"], all["omega"])
    begun = method.server_arrival(waiting, b, 0.6, where)
    assert begun["omega"].ravel().tolist() == [0.0, 9.0] and begun["labels"].tolist() == [0, 1, NONE, NONE]
    joined = method.server_arrival(begun, replace(c, weight=0.5), 0.3, where)
    assert joined["labels"].tolist() == [0, 1, 1, NONE]
    assert joined["omega"].ravel().tolist() == pytest.approx([0.0, 9.0 + 0.5 / 2 * (5.0 - 9.0)])
    fourth = method.server_arrival(joined, d, 0.6, where)
    assert fourth["labels"].tolist() == [0, 1, 1, 0]
    assert fourth["omega"].ravel().tolist() == [0.5, 7.0]


def test_theta_is_evaluated_first_and_w_and_omega_beside_it():
    problem = least_squares()
    ran = run(CGPFL(), problem, 1)
    assert list(models(CGPFL(), problem, ran, 0)) == ["personalised", "local", "cluster"]
    assert list(models(CGPFL(eval_model="w_local"), problem, ran, 0)) == ["local", "personalised", "cluster"]


def test_lambda_is_the_papers_or_what_does_not_overshoot():
    assert CGPFL().check(least_squares(step_size=0.05).federation) == []
    (told,) = CGPFL().check(least_squares(step_size=0.2).federation)
    assert "algorithm.lam is 5 = 1 / eta" in told
    assert float(CGPFL().client_init(clients_at(0.0, step_size=0.05).client(0))["eta_p"]) == pytest.approx(1 / 13)
    assert float(CGPFL().client_init(clients_at(0.0, step_size=0.2).client(0))["eta_p"]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"K": 0}, "algorithm.K"),
        ({"alpha": 1.5}, "algorithm.alpha"),
        ({"alpha": -0.1}, "algorithm.alpha"),
        ({"lam": 40.0}, "algorithm.lam"),
        ({"lam": -1.0}, "algorithm.lam"),
        ({"eta_p": 0.2}, "algorithm.eta_p"),
        ({"eta_p": 0.0}, "algorithm.eta_p"),
        ({"inner_steps": 0}, "algorithm.inner_steps"),
        ({"mu": -1.0}, "algorithm.mu"),
        ({"max_age": 0}, "algorithm.max_age"),
        ({"recluster_every": 0}, "algorithm.recluster_every"),
        ({"first_share": 0.0}, "algorithm.first_share"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, key):
    with pytest.raises(DescriptionError) as refused:
        CGPFL(**settings).check(least_squares(step_size=0.05).federation)
    assert refused.value.key == key


@pytest.mark.parametrize("training", [{"momentum": 0.5}, {"weight_decay": 0.1}])
def test_training_that_cgpfl_has_in_its_own_way_is_refused(training):
    with pytest.raises(DescriptionError, match="steps of its own"):
        CGPFL().check(least_squares(**training).federation)


def test_unstable_settings_run_where_that_is_allowed_and_more_contexts_than_clients_are_told():
    wild = CGPFL(alpha=1.5, lam=45.0, allow_unstable=True)
    (told,) = wild.check(least_squares(step_size=0.05).federation)
    assert "overshoots" in told
    (told,) = CGPFL(K=9).check(least_squares().federation)
    assert told == "algorithm.K = 9: no more than 4 clients have contexts"


def test_the_servers_work_is_that_of_kmeans():
    problem = least_squares([5] * 10, d=100)
    of = [Answer(i, {}, {}, 0, 5) for i in range(10)]
    assert CGPFL().server_work(problem.federation, of) == 2 * 100 * 100 + 2 * 100 * 4 * 100 + 2 * 10 * 100
    assert CGPFL().server_work(problem.federation, of[:1]) == 2 * 100 * (4 + 10)
    table = CGPFL(cluster_on="table")
    assert table.server_work(problem.federation, of[:1]) == CGPFL().server_work(problem.federation, of)
