"""CFL: when a cluster is split, into what, and what becomes of those who were away."""

import numpy as np
import pytest
import torch

from pflsim.algorithms.cfl import CFL
from pflsim.algorithms.fedavg import FedAvg
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from tests.clusters import planted
from tests.problems import classification, least_squares
from tests.test_equivalences import near, same, some

ROUNDS = 10
EAGER = CFL(eps1=1e9, eps2=0.0, warm_up=0)


@pytest.fixture(params=["least squares", "classification"])
def problem(request):
    return least_squares() if request.param == "least squares" else classification()


def where(number=0, N=4):
    return Round(number, tuple(range(N)), least_squares([5] * N, d=2).federation, 0.1)


def answers_of(changes, start=(0.0, 0.0), weights=None):
    begun = torch.tensor(start, dtype=torch.float64)
    shares = weights or {}
    return [
        Answer(i, {"d": torch.tensor(d, dtype=torch.float64)}, {"x": begun}, 0, 5, shares.get(i, 1.0))
        for i, d in sorted(changes.items())
    ]


def begun(method=EAGER, N=4):
    return {**method.server_init(where(N=N).federation), "x": torch.zeros(1, 2, dtype=torch.float64)}


APART = {0: [1.0, 0.1], 1: [-1.0, 0.1], 2: [1.0, -0.1], 3: [-1.0, 0.0]}


@pytest.mark.parametrize("draw", [some, lambda federation, _: federation.clients])
def test_e33_cfl_that_never_splits_is_fedavg(problem, draw):
    cfl = run(CFL(eps1=0.0, warm_up=0), problem, ROUNDS, draw)
    fedavg = run(FedAvg("uniform", upload="delta"), problem, ROUNDS, draw)
    assert len(cfl.all["x"]) == 1
    near(cfl.all["x"][0].double(), fedavg.all["x"].double(), 1e-6)


def test_planted_clusters_are_found_one_split_after_the_other_and_trained_apart():
    problem = planted(groups=3, each=3, step_size=0.1)
    ran = run(CFL(eps1=0.5, eps2=2.0, warm_up=0), problem, 80)
    labels = ran.all["labels"].tolist()
    assert labels == labels[:3] * 3 and len(ran.all["x"]) == 3
    for group in (0, 1, 2):
        own = [group, group + 3, group + 6]
        alone = run(FedAvg("uniform"), problem, 300, lambda *_, own=own: own).all["x"]
        assert float((ran.all["x"][labels[group]] - alone).norm()) < 0.2


def test_a_split_parts_those_who_pull_apart_and_each_half_adds_its_own_changes():
    after = EAGER.server_step(begun(), answers_of(APART), where())
    assert after["labels"].tolist() == [0, 1, 0, 1]
    near(after["x"], torch.tensor([[1.0, 0.0], [-1.0, 0.05]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("settings", "number", "splits"),
    [
        ({"eps1": 0.1, "eps2": 1.0, "warm_up": 3}, 3, True),
        ({"eps1": 0.1, "eps2": 1.0, "warm_up": 3}, 2, False),
        ({"eps1": 0.02, "eps2": 1.0, "warm_up": 0}, 9, False),  # the mean has length 0.025
        ({"eps1": 0.1, "eps2": 1.01, "warm_up": 0}, 9, False),  # the longest has length 1.005
    ],
)
def test_a_cluster_is_split_where_it_has_come_to_rest_but_its_clients_have_not(settings, number, splits):
    after = CFL(**settings).server_step(begun(), answers_of(APART), where(number))
    assert len(after["x"]) == 1 + splits
    told = CFL().measures(after, where())
    assert told["mean_norm"][0] == pytest.approx(0.025) and told["max_norm"][0] == pytest.approx(np.hypot(1, 0.1))
    assert told["clusters"] == len(told["mean_norm"]) == 1 + splits


def test_two_clients_are_never_parted():
    after = EAGER.server_step(begun(N=2), answers_of({0: [1.0, 0.0], 1: [-1.0, 0.0]}), where(N=2))
    assert len(after["x"]) == 1


def test_the_last_known_changes_decide_but_only_those_of_this_round_are_added():
    first = CFL(eps1=0.0).server_step(begun(), answers_of({0: [1.0, 0.1], 1: [-1.0, 0.1]}), where(0))
    near(first["x"], torch.tensor([[0.0, 0.1]], dtype=torch.float64))
    after = EAGER.server_step(first, answers_of({2: [1.0, -0.1]}), where(1))
    assert after["labels"].tolist() == [0, 1, 0, 0], "client 3 stays where the first member is, for the time being"
    near(after["x"], torch.tensor([[1.0, 0.0], [0.0, 0.1]], dtype=torch.float64))
    placed = CFL(eps1=0.0).server_step(after, answers_of({0: [0.5, 0.0], 1: [-0.5, 0.0]}), where(2))
    placed = CFL(eps1=0.0).server_step(placed, answers_of({3: [-2.0, 0.3]}), where(3))
    assert placed["labels"].tolist() == [0, 1, 0, 1], "when it answers, it joins those who change alike"


def test_a_split_waits_until_half_of_the_members_are_known():
    after = EAGER.server_step(begun(N=6), answers_of({0: [1.0, 0.0], 1: [-1.0, 0.0]}), where(N=6))
    assert len(after["x"]) == 1
    later = EAGER.server_step(after, answers_of({2: [-1.0, 0.1]}), where(1, N=6))
    assert len(later["x"]) == 2
    old = CFL(eps1=1e9, eps2=0.0, warm_up=0, max_age=1)
    between = old.server_step(after, answers_of({2: [1.0, 0.1]}), where(1, N=6))
    assert len(between["x"]) == 2, "of age 1"
    forgotten = CFL(eps1=0.0, max_age=1).server_step(after, answers_of({5: [1.0, 0.1]}), where(1, N=6))
    assert len(old.server_step(forgotten, answers_of({2: [1.0, 0.1]}), where(2, N=6))["x"]) == 1, "of age 2"


def test_changes_from_before_a_split_are_forgotten():
    after = EAGER.server_step(begun(N=8), answers_of({i: APART[i % 4] for i in range(8)}), where(N=8))
    assert after["labels"].tolist() == [0, 1] * 4
    again = EAGER.server_step(after, answers_of({0: [1.0, 0.0]}), where(1, N=8))
    assert len(again["x"]) == 2, "one of four is known"


def test_a_change_of_length_0_is_like_no_other():
    after = EAGER.server_step(
        begun(), answers_of({0: [0.0, 0.0], 1: [1.0, 0.0], 2: [1.0, 0.1], 3: [2.0, 0.0]}), where()
    )
    assert after["labels"].tolist() == [0, 1, 1, 1]


def test_an_arrival_is_mixed_into_its_cluster_and_a_buffer_moves_each_cluster_by_its_own():
    split = {**begun(), "x": torch.tensor([[0.0, 0.0], [5.0, 5.0]]).double(), "labels": torch.tensor([0, 1, 0, 1])}
    (came,) = answers_of({1: [1.0, 3.0]}, start=(4.0, 4.0))
    mixed = CFL().server_arrival(split, came, 0.5, where())
    near(mixed["x"], torch.tensor([[0.0, 0.0], [5.0, 6.0]]).double())
    buffered = CFL().server_buffer(
        split, answers_of({0: [1.0, 0.0], 1: [2.0, 0.0], 3: [4.0, 0.0]}), [1, 0.5, 1], where()
    )
    near(buffered["x"], torch.tensor([[1.0, 0.0], [5.0 + (1.0 + 4.0) / 2, 5.0]]).double())


def test_late_answers_count_less():
    came = answers_of({0: [1.0, 0.0], 1: [4.0, 0.0]}, weights={1: 0.5})
    after = CFL().server_step(begun(), came, where())
    near(after["x"], torch.tensor([[3.0 / 1.5, 0.0]]).double())


def test_the_model_of_the_cluster_is_evaluated():
    problem = least_squares()
    ran = run(CFL(), problem, 2)
    assert list(models(CFL(), problem, ran, 0)) == ["cluster"]
    same(models(CFL(), problem, ran, 0)["cluster"], ran.all["x"][0])


@pytest.mark.parametrize("settings", [{"eps1": -0.1}, {"eps2": -0.1}, {"warm_up": -1}, {"max_age": 0}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(DescriptionError, match=f"algorithm.{next(iter(settings))}"):
        CFL(**settings).check(least_squares().federation)
