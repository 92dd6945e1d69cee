"""CGPFL-Heur: how many contexts it chooses, and that it is CGPFL otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from pflsim.algorithms.cgpfl import CGPFL
from pflsim.algorithms.cgpfl_heur import CGPFLHeur
from pflsim.conformance.rounds import run
from pflsim.errors import DescriptionError
from pflsim.federation import Round
from tests.clusters import answers_of, clients_at, planted, round_of
from tests.problems import classification, least_squares
from tests.test_equivalences import all_of, same

ROUNDS = 10
SETTINGS = {"lam": 4.0, "eta_p": 0.03, "inner_steps": 3, "mu": 0.01}


@pytest.fixture(params=["least squares", "classification"])
def problem(request):
    return least_squares() if request.param == "least squares" else classification()


def test_e08_cgpfl_heur_with_one_candidate_is_cgpfl_bit_for_bit(problem):
    plain = run(CGPFL(K=2, alpha=0.7, **SETTINGS), problem, ROUNDS)
    chosen = run(CGPFLHeur(K=2, least=2, alpha=0.7, **SETTINGS), problem, ROUNDS)
    same(chosen.all["omega"], plain.all["omega"])
    same(all_of(chosen, "theta"), all_of(plain, "theta"))


@pytest.mark.parametrize("bound", ["relative", "clamped"])
def test_e09_without_a_cost_there_is_one_context_and_with_nothing_else_as_many_as_may_be(bound):
    problem = least_squares([7, 12, 9, 5, 8, 6])
    assert len(run(CGPFLHeur(mu_h=0.0, bound=bound), problem, 1).all["omega"]) == 1
    assert len(run(CGPFLHeur(mu_h=1e12, bound=bound), problem, 1).all["omega"]) == 3
    assert len(run(CGPFLHeur(K=6, mu_h=1e12, bound=bound), problem, 1).all["omega"]) == 6


def test_e09_equal_uploads_have_one_context():
    ran = run(CGPFLHeur(lam=0.0, mu_h=1e12), least_squares(), 2)
    assert ran.all["omega"].shape[0] == 1


def test_the_heuristic_finds_planted_contexts_and_tells_its_curve():
    problem = planted(groups=3, each=4)
    ran = run(CGPFLHeur(eta_p=0.05), problem, 3)
    measured = CGPFLHeur().measures(ran.all, round_of(problem))
    assert (measured["K"], measured["clusters"], measured["changed"]) == (3, 3, 0.0)
    assert measured["labels"].tolist() == (measured["labels"][:3].tolist() * 4)
    assert len(measured["e"]) == 6 and measured["e"].argmin() == 2
    assert measured["e"][0] == pytest.approx(1 + 10.0), "sqrt(1) + mu_h cost(1) / cost(1)"


def test_the_bound_is_that_of_the_paper_and_weighs_by_samples():
    problem = clients_at(0.0, 1.0, 4.0, 5.0)
    federation = replace(problem.federation, sizes=np.array([10, 20, 30, 40]))
    where = Round(0, (0, 1, 2, 3), federation, 0.1)
    start = CGPFLHeur(bound="paper", mu_h=2.0).server_init(federation)
    e = CGPFLHeur(bound="paper", mu_h=2.0).server_step(start, answers_of(0.0, 1.0, 4.0, 5.0), where)["e"].numpy()
    complexity = [np.sqrt(K / 100 * np.log(np.e * 100)) for K in (1, 2)]
    mean = 0.2 + 1.2 + 2.0
    cost = [
        0.1 * mean**2 + 0.2 * (1 - mean) ** 2 + 0.3 * (4 - mean) ** 2 + 0.4 * (5 - mean) ** 2,
        0.3 * (2 / 9) + 0.7 * (12 / 49),  # two clusters of two points at distance 1, weights 1:2 and 3:4
    ]
    np.testing.assert_allclose(e, np.array(complexity) + 2.0 * np.array(cost), rtol=1e-12)


def test_the_printed_bound_is_refused_where_its_logarithm_is_negative():
    problem = least_squares([1, 1], d=9)
    with pytest.raises(DescriptionError, match="log"):
        CGPFLHeur(bound="paper").check(problem.federation)
    assert CGPFLHeur(bound="clamped", eta_p=0.01).check(problem.federation) == []


def test_the_heuristic_may_choose_again_and_clusters_begin_anew_where_k_changes():
    problem = clients_at(0.0, 0.2, 9.0, 9.2)
    method = CGPFLHeur(heur_rounds=2)
    start = method.server_init(problem.federation)
    one = method.server_step(start, answers_of(3.0, 3.0, 3.0, 3.0), round_of(problem, 0))
    two = method.server_step(one, answers_of(0.0, 0.2, 9.0, 9.2), round_of(problem))
    then = method.server_step(two, answers_of(1.0, 1.0, 1.0, 1.0), round_of(problem))
    assert [len(all["omega"]) for all in (one, two, then)] == [1, 2, 2]
    assert sorted(two["omega"].ravel().tolist()) == pytest.approx([0.1, 9.1])


def test_the_heuristic_chooses_with_the_first_clusters_without_rounds_too():
    problem = clients_at(0.0, 1.0, 9.0, 8.0)
    where, method = round_of(problem), CGPFLHeur(first_share=1.0)
    all, came = method.server_init(problem.federation), answers_of(0.0, 9.0, 9.1, 0.1)
    for answer in came[:3]:
        all = method.server_arrival(all, answer, 0.6, where)
    assert not method.measures(all, where).keys() & {"K", "e"}
    all = method.server_arrival(all, came[3], 0.6, where)
    labels = all["labels"].tolist()
    assert len(all["omega"]) == 2 and labels in ([0, 1, 1, 0], [1, 0, 0, 1])


@pytest.mark.parametrize(
    "settings", [{"least": 0}, {"least": 3}, {"K": 2, "least": 3}, {"mu_h": -1}, {"heur_rounds": 0}]
)
def test_candidates_without_a_meaning_are_refused(settings):
    with pytest.raises(DescriptionError):
        CGPFLHeur(**settings).check(least_squares().federation)
