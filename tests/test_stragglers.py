"""Clients that do part of their work only: who they are, how much they do, and what becomes of it."""

from typing import Any

import pytest
import torch

from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.fedprox import FedProx
from pflsim.conformance.rounds import run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Federation, Round
from pflsim.stragglers import stragglers
from tests.problems import classification, least_squares

EPOCHS = {"local_steps": None, "local_epochs": 5}


def round_of(federation: Federation, number: int = 0, cohort: tuple[int, ...] | None = None) -> Round:
    return Round(number, cohort or tuple(federation.clients), federation, 0.05)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.5, 5), (0.9, 9), (0.34, 3), (1.0, 10)])
def test_a_share_of_the_cohort_straggles_and_does_at_least_one_epoch_but_never_all(share: float, expected: int) -> None:
    federation = least_squares([6] * 12, **EPOCHS).federation
    cohort = (0, 1, 2, 4, 5, 6, 8, 9, 10, 11)
    drawn = [stragglers(share, round_of(federation, number, cohort)) for number in range(50)]
    assert {len(parts) for parts in drawn} == {expected}
    assert {client for parts in drawn for client in parts} <= set(cohort)
    assert {part for parts in drawn for part in parts.values()} == (set(range(1, 5)) if expected else set())
    assert len({tuple(parts) for parts in drawn}) > 1 or expected in (0, 10)


def test_with_a_single_epoch_a_straggler_does_that_one() -> None:
    federation = least_squares([6] * 4, local_steps=None, local_epochs=1).federation
    assert set(stragglers(1.0, round_of(federation)).values()) == {1}


@pytest.mark.parametrize("length", [EPOCHS, {"local_steps": 5}], ids=["epochs", "steps"])
def test_the_same_clients_straggle_under_fedprox_and_fedavg_and_do_the_same_part(length: dict[str, Any]) -> None:
    """FedProx without its term and FedAvg that takes what stragglers did are one method, bit for bit."""
    problem = classification(**length)
    prox = run(FedProx(mu=0.0, drop_percent=0.5), problem, 5)
    average = run(FedAvg(drop_percent=0.5, stragglers="aggregate"), problem, 5)
    assert torch.equal(prox.all["x"], average.all["x"])
    assert not torch.equal(prox.all["x"], run(FedAvg(), problem, 5).all["x"])


def test_fedavg_averages_those_alone_who_have_done_all_of_their_work() -> None:
    problem = least_squares([6] * 4, **EPOCHS)
    parts = stragglers(0.5, round_of(problem.federation))
    others = [client for client in problem.federation.clients if client not in parts]
    dropped = run(FedAvg(drop_percent=0.5), problem, 1)
    assert torch.equal(dropped.all["x"], run(FedAvg(), problem, 1, lambda *_: others).all["x"])
    assert len(dropped.ups[0]) == 4
    lost = run(FedProx(drop_percent=1.0, stragglers="drop"), problem, 3)
    assert torch.equal(lost.all["x"], problem.federation.initial)


def test_a_straggler_trains_for_its_epochs_by_hand() -> None:
    problem = least_squares([6] * 4, **EPOCHS)
    ran = run(FedAvg(drop_percent=0.5), problem, 1)
    for client, part in stragglers(0.5, round_of(problem.federation)).items():
        steps = part * 2  # batches of 4 samples out of 6
        expected = problem.new_task(client, 0, 0).sgd(problem.federation.initial, steps=steps)
        torch.testing.assert_close(ran.ups[0][client]["u"], expected)


@pytest.mark.parametrize("method", [FedAvg(drop_percent=0.5), FedProx(drop_percent=0.5, stragglers="drop")])
def test_without_rounds_too_what_a_straggler_sends_is_dropped(method: Any) -> None:
    federation = least_squares().federation
    x, this = federation.initial, round_of(federation)
    name = "u" if isinstance(method, FedAvg) else "w"
    whole = Answer(0, {name: x + 1}, {"x": x}, 0, 7)
    partial = Answer(1, {name: x + 9}, {"x": x, "part": torch.tensor([1])}, 0, 7)
    state = {"x": x}
    assert torch.equal(method.server_arrival(state, partial, 0.5, this)["x"], x)
    assert torch.equal(method.server_buffer(state, [partial], [0.5], this)["x"], x)
    torch.testing.assert_close(method.server_buffer(state, [whole, partial], [0.5, 0.1], this)["x"], x + 0.5)
    torch.testing.assert_close(method.server_arrival(state, whole, 0.5, this)["x"], x + 0.5)


@pytest.mark.parametrize("method", [FedAvg(drop_percent=50.0), FedProx(drop_percent=50.0)])
def test_a_percentage_is_refused_for_a_share(method: Any) -> None:
    with pytest.raises(DescriptionError, match=r"algorithm.drop_percent = 50.0: must be a share from 0 to 1"):
        method.check(least_squares().federation)
