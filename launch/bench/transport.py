"""A method and a model that do nothing but travel: what moving large vectors costs, without any learning."""

from dataclasses import dataclass

import torch
from torch import nn

from pflsim.algorithms.fedavg import FedAvg
from pflsim.federation import Tensors
from pflsim.learning.task import Task, Work

FACTOR = 0.5


@dataclass(frozen=True)
class Halve(FedAvg):
    """FedAvg whose local training is u = x / 2: one pass over the vector."""

    def client_work(self, task: Task, down: Tensors) -> Work:
        return Work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return you, {"u": down["x"] * FACTOR}


def vector(shape: tuple[int, ...], classes: int, *, floats: int) -> nn.Module:
    """A model of `floats` parameters, the first of which are the logits of every sample."""
    return _Vector(classes, floats)


class _Vector(nn.Module):
    def __init__(self, classes: int, floats: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.ones(floats))
        self._classes = classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits[: self._classes].expand(len(x), self._classes)
