"""What a method may not do is noticed when it does it, and named, instead of spoiling a result or stalling a run."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from nodes.sequential import run_sequentially
from pflsim.algorithms.fedavg import FedAvg
from pflsim.errors import RunFailed
from pflsim.federation import Answer, Client, Round, Tensors
from pflsim.learning.task import Task
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description


def played(method: FedAvg, **settings: Any) -> None:
    study = Study(validate(description(**settings)), b"8 bytes.")
    study.method = method
    run_sequentially(study)


class ChangesInitial(FedAvg):
    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial.mul_(2)}


class ChangesYou(FedAvg):
    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial.clone()}

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        you["w"].add_(1)
        return super().client_step(you, down, task)


class ChangesDown(FedAvg):
    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        down["x"].mul_(0.5)
        return super().client_step(you, down, task)


class ChangesServer(FedAvg):
    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        return {"x": all["x"].add_(1)}


class ChangesUpload(FedAvg):
    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {"x": answer.up["u"].mul_(weight)}


@pytest.mark.parametrize(
    ("method", "named", "schedule"),
    [
        (ChangesInitial(), "fedavg.client_init", {"kind": "sync"}),
        (ChangesYou(), "fedavg.client_step", {"kind": "sync"}),
        (ChangesDown(), "fedavg.client_step", {"kind": "sync"}),
        (ChangesServer(), "the server's half of fedavg", {"kind": "sync"}),
        (ChangesUpload(), "the server's half of fedavg", {"kind": "fedasync", "concurrency": 2}),
    ],
)
def test_a_method_that_writes_to_what_it_was_given_ends_the_run(
    method: FedAvg, named: str, schedule: dict[str, Any]
) -> None:
    with pytest.raises(RunFailed, match=f"{named}: has changed a tensor that it was given"):
        played(method, schedule=schedule)


class Sends(FedAvg):
    """Sends something that no receiver would take."""

    what: Any = None

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        super().client_step(you, down, task)
        return you, type(self).what


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({1: torch.zeros(2)}, "tensor 1 has a int for a name; it must be text"),
        ({"u": 3.0}, "'u' is a float; only tensors travel"),
        ({"u": torch.zeros([1] * 9)}, "tensor 'u' has 9 dimensions, at most 8 travel"),
        ({f"u{number}": torch.zeros(1) for number in range(1025)}, "a message of 1025 tensors, at most 1024"),
        ({"u" * (1 << 20): torch.zeros(1)}, "a RESULT whose header has"),
        ({"u": torch.zeros(2, dtype=torch.complex64)}, "tensor 'u' has dtype torch.complex64"),
    ],
)
def test_what_no_receiver_would_take_is_not_sent_but_named(what: Any, said: str) -> None:
    sending = type("Sending", (Sends,), {"what": what})
    with pytest.raises(RunFailed, match="cannot send its RESULT to server") as problem:
        played(sending())
    assert said in str(problem.value)
