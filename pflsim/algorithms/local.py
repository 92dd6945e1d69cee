"""Local: every client trains alone, the baseline that any collaboration has to beat.

Objective: min over w_i of f_i(w_i), for each client separately.

A round at client i:    w_i <- R SGD steps on f_i from w_i
Communication per visit: nothing down, nothing up (the visit itself still happens, so that time passes).
Asynchronous form: an arrival changes nothing.
State: w_i at the client; nothing at the server. A client that is not drawn keeps its w_i.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pflsim.federation import Answer, Client, Federation, Round, Tensors
from pflsim.learning.task import Task, Work


@dataclass(frozen=True)
class Local:
    """No collaboration: w_i <- sgd(w_i)."""

    mixes: ClassVar[bool] = False
    any_model: ClassVar[bool] = True

    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return {"w": task.sgd(you["w"])}, {}

    def server_init(self, federation: Federation) -> Tensors:
        return {}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        return all

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return all

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return all

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": you["w"]}
