"""FedPer: which layers travel, and its limits, FedAvg and Local."""

from typing import Any

import pytest
import torch
from torch import nn

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.fedper import FedPer
from pflsim.algorithms.local import Local
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from pflsim.learning.vector import network
from tests.mixing import ROUNDS, close, personal, same, some
from tests.problems import classification

SPLIT = 4 * 6 + 6  # the parameters of the first layer, of 6 units on 4 inputs


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_e29_without_personal_layers_it_is_fedavg(weights: Any) -> None:
    """E29, bit for bit."""
    problem = classification(hidden=6)
    fedper, fedavg = run(FedPer(0, weights), problem, ROUNDS, some), run(FedAvg(weights), problem, ROUNDS, some)
    same(fedper.all["base"], fedavg.all["x"])
    assert fedper.you == [{}] * 5


@pytest.mark.parametrize("hidden", [None, 6])
def test_e29_with_all_layers_personal_it_is_local_and_nothing_travels(hidden: int | None) -> None:
    """E29, bit for bit."""
    problem = classification(hidden=hidden)
    fedper = run(FedPer(1 if hidden is None else 2), problem, ROUNDS, some)
    same(personal(fedper, "head"), personal(run(Local(), problem, ROUNDS, some), "w"))
    assert fedper.all == {} and all(up == {} for ups in fedper.ups for up in ups.values())


def test_both_parts_are_trained_together_and_the_base_alone_is_averaged() -> None:
    problem = classification(hidden=6)
    ran = run(FedPer(), problem, 2)
    base, heads, w0 = problem.federation.initial[:SPLIT], [problem.federation.initial[SPLIT:]] * 5, []
    for number in range(2):
        w0 = [problem.new_task(i, number, number).sgd(torch.cat([base, heads[i]])) for i in range(5)]
        n = [problem.new_task(i, 0, 0).n_samples for i in range(5)]
        base = (sum(k * w[:SPLIT].double() for k, w in zip(n, w0, strict=True)) / sum(n)).float()  # type: ignore[union-attr]
        heads = [w[SPLIT:] for w in w0]
    torch.testing.assert_close(ran.all["base"], base)
    torch.testing.assert_close(personal(ran, "head"), torch.stack(heads))
    assert {name: len(up) for name, up in ran.ups[0][0].items()} == {"base": SPLIT}


def test_a_client_is_evaluated_with_its_own_head_and_the_newest_base() -> None:
    problem = classification(hidden=6)
    ran = run(FedPer(), problem, ROUNDS, some)
    for i in range(5):
        found: Any = models(FedPer(), problem, ran, i)
        assert list(found) == ["personalised"]
        same(found["personalised"], torch.cat([ran.all["base"], ran.you[i]["head"]]))


def test_a_layer_is_a_module_with_parameters_of_its_own() -> None:
    net = network(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3, bias=False)), (1, 4, 4))
    assert [FedPer(k)._split(net.layout) for k in (0, 1, 2)] == [20 + 24, 20, 0]


def test_arrivals_and_buffers_move_the_base_as_fedavg_does() -> None:
    problem = classification(hidden=6)
    base, there = torch.arange(SPLIT).float(), Round(0, (0,), problem.federation, 0.05)
    came = Answer(0, {"base": base + 1}, {"base": base}, 3, 5)
    close(FedPer().server_arrival({"base": base}, came, 0.25, there)["base"], *(base + 0.25))
    close(FedPer().server_buffer({"base": base + 2}, [came, came], [0.5, 1.0], there)["base"], *(base + 2.75))


@pytest.mark.parametrize("layers", [-1, 3])
def test_there_cannot_be_more_personal_layers_than_the_model_has(layers: int) -> None:
    with pytest.raises(DescriptionError, match=r"algorithm\.personal_layers = .*: must be from 0 to 2"):
        FedPer(layers).check(classification(hidden=6).federation)


def test_a_model_of_which_nothing_is_shared_is_warned_about() -> None:
    (warning,) = FedPer().check(classification().federation)
    assert "nothing is shared" in warning
    assert FedPer().check(classification(hidden=6).federation) == []
