"""FedCedar and its ablations: by hand, as limits, and what they keep."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.fedcedar import FedCedar
from pflsim.clustering.geometry import cosines, gram
from pflsim.clustering.labels import NONE
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError, RunFailed
from pflsim.federation import Answer, Round
from pflsim.rng import stream
from tests.clusters import planted
from tests.problems import classification, least_squares
from tests.test_equivalences import all_of, near, same, some

ROUNDS = 10
UNIFORM = FedAvg("uniform", upload="model")


@pytest.fixture(params=["least squares", "classification"])
def problem(request):
    return least_squares() if request.param == "least squares" else classification()


def vectors(*rows):
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


def answers_of(uploads, clients=None, starts=None, weights=None):
    ids = clients or range(len(uploads))
    begun, shares = starts or [torch.zeros_like(u) for u in uploads], weights or [1.0] * len(uploads)
    return [
        Answer(i, {"w": u}, {"what": start}, 0, 5, weight)
        for i, u, start, weight in zip(ids, uploads, begun, shares, strict=True)
    ]


def stepped(method, uploads, N=6, **more):
    """The state after one round in which these uploads came, and the round."""
    problem = least_squares([5] * N, d=len(uploads[0]))
    where = Round(0, tuple(range(N)), problem.federation, 0.1)
    return method.server_step(method.server_init(problem.federation), answers_of(uploads, **more), where), where


def cloud(n=6, d=4, shift=1.0):
    """Uploads whose cosines are of either sign."""
    rng = stream(8, "cloud")
    return [torch.from_numpy(rng.normal(size=d) + shift * (j % 2)) for j in range(n)]


@pytest.mark.parametrize("P", [0, 1, 3])
def test_e34_fedcedar_with_one_cluster_is_fedavg(problem, P):
    cedar, fedavg = run(FedCedar(K=1, P=P), problem, ROUNDS, some), run(UNIFORM, problem, ROUNDS, some)
    near(cedar.all["mean"].double(), fedavg.all["x"].double(), 1e-10 if problem.federation.layout is None else 1e-5)


def test_e35_fedcedar_without_propagation_is_as_2_bit_for_bit(problem):
    none, as_2 = (run(m, problem, ROUNDS, some) for m in (FedCedar(K=2, P=0), FedCedar(K=2, ablation="AS-2")))
    same(none.all["what"], as_2.all["what"])
    same(all_of(none, "w"), all_of(as_2, "w"))


def test_e35_fedcedar_with_a_cluster_for_each_answer_is_as_1_bit_for_bit(problem):
    many, as_1 = (run(m, problem, ROUNDS, some) for m in (FedCedar(K=9), FedCedar(ablation="AS-1")))
    same(many.all["what"], as_1.all["what"])
    same(all_of(many, "w"), all_of(as_1, "w"))


def test_e35_as_1_without_propagation_lets_who_returns_go_on_and_sends_the_mean_to_all_others():
    problem = least_squares()
    turns = [[0, 1], [1, 2, 3], [0, 1]]
    ran = run(FedCedar(ablation="AS-1", P=0), problem, 2, lambda _, number: turns[number])
    w = [ran.ups[1][i]["w"] for i in (1, 2, 3)]
    where = Round(2, (0, 1), problem.federation, 0.05)
    same(FedCedar().server_down(ran.all, 1, where)["what"], w[0])
    near(FedCedar().server_down(ran.all, 0, where)["what"], torch.stack(w).mean(0))


def test_e36_as_3_without_propagation_is_fedavg_where_clusters_are_equally_large():
    problem = planted(groups=2, each=3)
    near(run(FedCedar(K=2, P=0, ablation="AS-3"), problem, ROUNDS).all["mean"], run(UNIFORM, problem, ROUNDS).all["x"])


def test_e36_with_unequal_clusters_it_is_fedavg_only_where_the_mean_is_over_clients():
    problem = planted(groups=2, each=3)
    most = run(UNIFORM, problem, ROUNDS, lambda *_: [0, 1, 2, 4]).all["x"]  # of one group three, of the other one
    by_clusters, by_clients = (
        run(FedCedar(K=2, P=0, ablation="AS-3", mean=mean), problem, ROUNDS, lambda *_: [0, 1, 2, 4]).all["mean"]
        for mean in ("clusters", "clients")
    )
    near(by_clients, most)
    assert float((by_clusters - most).norm()) > 1.0


@pytest.mark.parametrize("self_loop", [True, False])
@pytest.mark.parametrize("similarity", ["clip", "shift", "softmax"])
def test_e37_propagation_averages_and_the_spread_never_grows(similarity, self_loop):
    r = FedCedar(similarity=similarity, self_loop=self_loop)._edges(cosines(gram(cloud())))
    np.testing.assert_allclose(r.sum(1), 1.0, atol=1e-12)
    assert (r >= 0.0).all()
    spreads, c = [], torch.stack(cloud())
    for P in range(6):
        method = FedCedar(P=P, ablation="AS-1", similarity=similarity, self_loop=self_loop)
        all, where = stepped(method, cloud())
        assert (all["what"] >= c.min(0).values - 1e-12).all() and (all["what"] <= c.max(0).values + 1e-12).all()
        told = method.measures(all, where)
        spreads.append(told["spread_after"])
        assert told["spread_before"] == pytest.approx(spreads[0], rel=1e-6)
    assert (np.diff(spreads) <= 1e-6).all()


def test_e38_without_end_all_centres_become_their_mean_weighed_by_how_alike_they_are():
    """Of centres that are all linked, also if not directly: some are not alike at all."""
    uploads = vectors(*([j * np.cos(j * 0.9), j * np.sin(j * 0.9)] for j in (1, 2, 3, 4)))
    cosine = cosines(gram(uploads))
    assert (cosine < 0.0).any()
    all, _ = stepped(FedCedar(P=3000, ablation="AS-1"), uploads)
    s = np.maximum(cosine, 0.0).sum(1)
    limit = torch.from_numpy(s / s.sum()) @ torch.stack(uploads)
    near(all["what"], limit.repeat(4, 1))


def test_e39_equal_uploads_are_one_cluster_which_is_that_vector():
    all, where = stepped(FedCedar(K=4), vectors([1.5, -2.0, 0.25]) * 5)
    near(all["what"], torch.tensor([[1.5, -2.0, 0.25]], dtype=torch.float64))
    assert FedCedar().measures(all, where)["clusters"] == 1


def test_one_propagation_by_hand():
    """Centres (1, 0), (1, 1), (0, -1): cosines 1/sqrt 2, 0 and -1/sqrt 2, of which the last counts as 0."""
    uploads = vectors([1.0, 0.0], [1.0, 1.0], [0.0, -1.0])
    all, _ = stepped(FedCedar(K=3, P=1), uploads)
    h = np.sqrt(0.5)
    np.testing.assert_allclose(all["what"], [[1, h / (1 + h)], [1, 1 / (1 + h)], [0, -1]], atol=1e-12)
    np.testing.assert_allclose(all["mean"], [2 / 3, 0.0], atol=1e-12)


def test_the_edges_are_measured_by_hand_and_without_propagation_each_centre_has_itself():
    uploads, h = vectors([1.0, 0.0], [1.0, 1.0], [0.0, -1.0]), np.sqrt(0.5)
    told = [FedCedar().measures(*stepped(method, uploads))["r"] for method in (FedCedar(K=3), FedCedar(K=3, P=0))]
    near, far = 1 / (1 + h), h / (1 + h)
    np.testing.assert_allclose(told[0], [[near, far, 0], [far, near, 0], [0, 0, 1]], atol=1e-12)
    assert np.array_equal(told[1], np.eye(3))


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ({"similarity": "shift"}, [2.0, 1 + np.sqrt(0.5), 1.0]),
        ({"similarity": "softmax", "temperature": 0.5}, np.exp([2.0, 2 * np.sqrt(0.5), 0.0])),
        ({"similarity": "signed"}, [1.0, np.sqrt(0.5), 0.0]),
        ({"self_loop": False}, [0.0, 1.0, 0.0]),
    ],
)
def test_similarities_by_hand(settings, row):
    cosine = cosines(gram(vectors([1.0, 0.0], [1.0, 1.0], [0.0, -1.0])))
    np.testing.assert_allclose(FedCedar(**settings)._edges(cosine)[0], np.array(row) / np.sum(row), atol=1e-12)


def test_a_node_without_neighbours_keeps_what_it_has_and_a_vector_of_length_0_has_none():
    cosine = cosines(gram(vectors([1.0, 0.0], [-1.0, 0.0], [0.0, 0.0])))
    np.testing.assert_array_equal(FedCedar(self_loop=False)._edges(cosine), np.eye(3))
    np.testing.assert_array_equal(FedCedar()._edges(cosine), np.eye(3))


def test_signed_similarities_that_add_up_to_nothing_end_the_run():
    with pytest.raises(RunFailed, match="add up to nothing"):
        stepped(FedCedar(K=2, similarity="signed"), vectors([1.0, 0.0], [-1.0, 0.0]))


def test_likeness_may_be_that_of_what_was_learnt_or_of_the_last_layer():
    uploads, starts = vectors([9.0, 1.0], [9.0, -1.0]), vectors([9.0, 0.0], [9.0, 0.0])
    by_model, _ = stepped(FedCedar(K=2, P=1), uploads, starts=starts)
    by_change, _ = stepped(FedCedar(K=2, P=1, sim_on="delta"), uploads, starts=starts)
    near(by_change["what"], torch.stack(uploads))
    assert float(by_model["what"][0, 1]) < 0.1
    problem = classification()
    near(*(run(FedCedar(K=2, sim_on=on), problem, 2).all["what"] for on in ("head", "params")))  # one layer is all


def test_who_was_in_the_last_round_gets_its_cluster_and_others_the_mean_of_the_clusters():
    uploads = vectors([1.0], [1.2], [-5.0])
    all, where = stepped(FedCedar(K=2, P=0), uploads, clients=[1, 3, 4])
    sent = [float(FedCedar().server_down(all, i, where)["what"]) for i in range(6)]
    assert sent == pytest.approx([-1.95, 1.1, -1.95, 1.1, -5.0, -1.95])
    assert all["labels"].tolist() in ([NONE, 0, NONE, 0, 1, NONE], [NONE, 1, NONE, 1, 0, NONE])
    everybody = [float(FedCedar(ablation="AS-3").server_down(all, i, where)["what"]) for i in range(6)]
    assert everybody == pytest.approx([-1.95] * 6)


def test_a_client_may_be_remembered_for_longer_than_a_round():
    for remember, sent in (("last_round", 4.0), ("last_seen", 1.0)):
        method = FedCedar(K=2, P=0, remember=remember)
        all, where = stepped(method, vectors([1.0], [2.0]))
        all = method.server_step(all, answers_of(vectors([3.0], [5.0]), clients=[1, 2]), where)
        assert float(method.server_down(all, 0, where)["what"]) == sent
        assert float(method.server_down(all, 1, where)["what"]) == 3.0
        assert float(method.server_down(all, 5, where)["what"]) == 4.0


def test_late_answers_weigh_less_in_their_centre():
    all, where = stepped(FedCedar(K=1), vectors([0.0], [4.0]), weights=[1.0, 0.5])
    assert float(all["what"]) == pytest.approx(4.0 * 0.5 / 1.5)
    buffered = FedCedar(K=1).server_buffer(all, answers_of(vectors([0.0], [4.0])), [3.0, 1.0], where)
    assert float(buffered["what"]) == pytest.approx(1.0)


def test_models_are_evaluated_after_local_training_first_and_as_received_beside_it():
    problem = least_squares()
    ran = run(FedCedar(), problem, 2)
    evaluated = models(FedCedar(), problem, ran, 1)
    assert list(evaluated) == ["local", "received"]
    same(evaluated["local"], ran.ups[-1][1]["w"])
    assert list(models(FedCedar(eval_model="received"), problem, ran, 1)) == ["received", "local"]


@pytest.mark.parametrize("settings", [{"K": 0}, {"P": -1}, {"temperature": 0.0}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(DescriptionError, match=f"algorithm.{next(iter(settings))}"):
        FedCedar(**settings).check(least_squares().federation)


def test_the_servers_work_is_that_of_kmeans_and_of_the_graph():
    federation = least_squares([5] * 10, d=100).federation
    of = answers_of([torch.zeros(100)] * 10)
    assert FedCedar(K=4).server_work(federation, of) == 2e4 + 2 * 100 * 4 * 100 + 2000 + 4 * 16 * 100
    assert replace(FedCedar(), ablation="AS-1").server_work(federation, of) == 4 * 100 * 100
