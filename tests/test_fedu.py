"""FedU: what its Laplacian step keeps, where it is another method, and when it is refused."""

import numpy as np
import pytest
import torch

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.fedu import FedU
from pflsim.algorithms.local import Local
from pflsim.algorithms.pfedme import PFedMe
from pflsim.conformance.rounds import run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from pflsim.rng import stream
from pflsim.topology import lambda_max, laplacian
from tests.problems import classification, least_squares, quadratics
from tests.test_equivalences import ROUNDS, all_of, near, same, some

N = 4
COMPLETE = 0.5 * (1.0 - np.eye(N))
TWO_PAIRS = np.kron(np.eye(2), np.array([[0.0, 0.7], [0.7, 0.0]]))


def random_graph(clients=N):
    drawn = np.triu(stream(5, "graph").uniform(size=(clients, clients)), 1)
    return drawn + drawn.T


def laplacian_step(method, models, graph, drawn=None, **training):
    """The server's half alone: `models` [N, d] come in as the answers of `drawn`; R = 1 step."""
    problem = least_squares([4] * len(models), graph=graph, local_steps=1, **training)
    cohort = range(len(models)) if drawn is None else drawn
    answers = [Answer(k, {"w": models[k]}, {}, 0, 4) for k in cohort]
    round = Round(0, tuple(cohort), problem.federation, problem.federation.training.step_size)
    return method.server_step({"w": models}, answers, round)["w"]


def some_models(clients=N):
    return torch.from_numpy(stream(6, "models").normal(size=(clients, 3)))


def method_of(c, step_size=0.05, **settings):
    """A FedU whose coefficient mu R eta_r is `c`."""
    return FedU(eta_r=c / step_size, reg_R="steps", allow_unstable=True, **settings)


def test_e40_fedu_without_regularisation_is_local():
    """E40, bit for bit, with sampling."""
    for problem in (least_squares(graph=random_graph()), classification(N, graph=random_graph())):
        fedu, local = run(FedU(eta_r=0.0), problem, ROUNDS, some), run(Local(), problem, ROUNDS, some)
        same(fedu.all["w"], all_of(local, "w"))


def test_e41_fedu_on_the_complete_graph_averages_when_the_pull_is_full():
    """E41: c a N = 1 makes every model the mean of all, so each round is one of FedAvg."""
    problem = least_squares(graph=COMPLETE, local_steps=1)
    fedu, fedavg = run(method_of(c=1 / (0.5 * N)), problem, ROUNDS), run(FedAvg("uniform"), problem, ROUNDS)
    for number in range(1, ROUNDS + 1):
        near(fedu.server[number]["w"], fedavg.server[number]["x"].repeat(N, 1))


def test_e42_fedu_on_the_complete_graph_mixes_each_model_with_the_mean():
    """E42: w_k' = (1 - c N a) v_k + c N a mean(v)."""
    v, c = some_models(), 0.3
    pull = c * N * 0.5
    near(laplacian_step(method_of(c), v, COMPLETE), (1 - pull) * v + pull * v.mean(0))


def test_the_laplacian_step_is_the_matrix_of_the_paper():
    v, graph = some_models(), random_graph()
    expected = (torch.eye(N).double() - 0.2 * torch.from_numpy(laplacian(graph))) @ v
    near(laplacian_step(method_of(0.2), v, graph), expected)


def test_e43_the_laplacian_step_preserves_the_mean_of_all():
    """E43: full participation, a symmetric graph, all at once."""
    v = some_models()
    near(laplacian_step(method_of(0.2), v, random_graph()).mean(0), v.mean(0))


def test_e43_the_laplacian_step_preserves_the_mean_of_the_drawn_where_only_they_appear():
    """E43: neighbours = "sampled"."""
    v, drawn = some_models(), [0, 2, 3]
    moved = laplacian_step(method_of(0.2, neighbours="sampled"), v, random_graph(), drawn)
    near(moved[drawn].mean(0), v[drawn].mean(0))
    same(moved[1], v[1])


@pytest.mark.parametrize(("settings", "drawn"), [({}, [0, 2]), ({"order": "gauss_seidel"}, None)])
def test_e43_partial_participation_and_in_place_order_do_not_preserve_the_mean(settings, drawn):
    """E43, the counter-tests."""
    v = some_models()
    moved = laplacian_step(method_of(0.2, **settings), v, random_graph(), drawn)
    assert float((moved.mean(0) - v.mean(0)).abs().max()) > 1e-3


@pytest.mark.parametrize(("factor", "settles"), [(0.1, True), (1.0, True), (1.9, True), (2.1, False)])
def test_e45_the_models_agree_in_the_end_exactly_if_c_lambda_max_is_below_2(factor, settles):
    """E45."""
    graph, models = random_graph(), some_models()
    spread = [float((models - models.mean(0)).norm())]
    for _ in range(300):
        models = laplacian_step(method_of(factor / lambda_max(graph)), models, graph)
        spread.append(float((models - models.mean(0)).norm()))
    assert (spread[-1] < 1e-2 * spread[0]) == settles
    assert (spread[-1] > 1e3 * spread[0]) != settles


def test_e46_the_difference_of_two_clients_shrinks_by_one_minus_2ca():
    """E46."""
    v, c, a = some_models(2), 0.3, 0.8
    moved = laplacian_step(method_of(c), v, np.array([[0.0, a], [a, 0.0]]))
    near(moved[0] - moved[1], (1 - 2 * c * a) * (v[0] - v[1]))


def test_the_components_of_a_graph_run_as_if_they_were_alone():
    """E47, bit for bit: the others' taking part changes nothing."""
    problem = least_squares(graph=TWO_PAIRS)
    together = run(FedU(eta_r=1.0), problem, ROUNDS)
    first_pair = run(FedU(eta_r=1.0), problem, ROUNDS, lambda *_: [0, 1])
    same(together.all["w"][:2], first_pair.all["w"][:2])
    assert not torch.equal(together.all["w"][2:], first_pair.all["w"][2:])


def test_without_edges_fedu_is_local():
    """E47, bit for bit."""
    problem = least_squares(graph=np.zeros((N, N)))
    same(run(FedU(eta_r=1.0), problem, ROUNDS, some).all["w"], all_of(run(Local(), problem, ROUNDS, some), "w"))


def star(h, b, **training):
    """Clients 1 to 3 with their quadratics around a client 0 that has no loss of its own, F_0 = 0."""
    graph = np.zeros((N, N))
    graph[0, 1:] = graph[1:, 0] = 1.0
    d = h[0].shape[0]
    problem = quadratics([np.eye(d), *h], [np.zeros(d), *b], graph, **training)
    for rows in (problem.new_task(0, 0, 0).a, problem.new_task(0, 0, 0).y):
        rows.zero_()
    return problem


def clients_of_a_star():
    rng = stream(8, "star")
    roots = rng.normal(size=(3, 2, 2))
    return [root @ root.T + np.eye(2) for root in roots], list(rng.normal(size=(3, 2)))


def optimum_on_a_star(h, b, eta_r):
    """The minimiser of sum_k f_k(z_k) + (eta_r / 2) sum_k ||z_k - z_0||^2: z_0, and the z_k [3, 2]."""
    pulled = [np.linalg.inv(own + eta_r * np.eye(2)) for own in h]
    inner = sum(np.eye(2) - eta_r * inverse for inverse in pulled)
    z0 = np.linalg.solve(inner, sum(inverse @ own @ target for inverse, own, target in zip(pulled, h, b, strict=True)))
    z = [inverse @ (own @ t + eta_r * z0) for inverse, own, t in zip(pulled, h, b, strict=True)]
    return z0, np.array(z)


def test_e48_on_a_star_the_centre_is_the_mean_and_the_optimum_is_that_of_pfedme():
    """E48 on quadratics: z_0 = mean z_k, and pFedMe with lambda = eta_r converges to it."""
    h, b = clients_of_a_star()
    z0, z = optimum_on_a_star(h, b, eta_r=1.5)
    np.testing.assert_allclose(z0, z.mean(0), atol=1e-12)
    method = PFedMe(lam=1.5, inner_steps=100, eta_p=0.1, mu=0.0, theta_init="persist")
    ran = run(method, quadratics(h, b, step_size=1 / 1.5, local_steps=1), 60)
    near(ran.all["x"], torch.from_numpy(z0), 1e-8)
    near(all_of(ran, "theta"), torch.from_numpy(z), 1e-8)


def test_e48_fedu_on_a_star_approaches_that_optimum_with_its_step_size():
    """E48 on quadratics: the two kinds of step alternate, so it misses by the order of the step size."""
    h, b = clients_of_a_star()
    z0, z = optimum_on_a_star(h, b, eta_r=1.5)
    expected, distances = torch.from_numpy(np.vstack([z0, z])), []
    for step_size in (0.04, 0.02, 0.01):
        problem = star(h, b, step_size=step_size, local_steps=1)
        ran = run(FedU(eta_r=1.5, reg_R="steps"), problem, int(12 / step_size))
        distances.append(float((ran.all["w"] - expected).norm()))
    assert distances[0] < 0.1
    assert distances[1] / distances[0] == pytest.approx(0.5, abs=0.05)
    assert distances[2] / distances[1] == pytest.approx(0.5, abs=0.05)


def test_fedu_refuses_a_step_that_diverges_and_names_the_bound():
    problem = least_squares(graph=COMPLETE, step_size=0.1, local_steps=None, local_epochs=5)
    unstable = FedU(eta_r=2.0)  # c lambda_max = 0.1 * 5 * 2 * (0.5 * 4) = 2
    with pytest.raises(DescriptionError, match=r"eta_r = 2.0: c lambda_max\(L\).* = 2 must be below 2"):
        unstable.check(problem.federation)
    assert FedU(eta_r=2.0, allow_unstable=True).check(problem.federation) != []


def test_fedu_warns_of_a_step_that_overshoots():
    federation = least_squares(graph=COMPLETE, step_size=0.1, local_steps=None, local_epochs=5).federation
    told = [len(FedU(eta_r=eta_r).check(federation)) for eta_r in (0.5, 1.0, 1.1, 1.5)]  # c lambda_max = eta_r
    assert told == [0, 0, 1, 1]


def test_fedu_refuses_to_run_without_a_graph():
    with pytest.raises(DescriptionError, match="needs a graph"):
        FedU().check(least_squares().federation)
