"""Centralised (Global): one model trained on the training data of all clients in one place; data leaves the clients.

That is what federated learning is there to avoid, so that this is a baseline only; the record says so too.

Objective: min over w of f(w), the mean loss over the training data of all clients together.

The study moves all training data to client 0, and leaves everybody its test part, whatever partition the description
names (`pools`); the partition `pooled` does the same for any other method.

A round, whoever was drawn:
    client 0    w <- SGD steps on f from x: as many passes over all data as clients make over theirs (local_epochs),
                or as many steps as all N clients take together (N local_steps)
    server      x <- w
Communication per visit: 1 vector [d] down (x), 1 up (w), of client 0 alone; how the data got there is not charged.
Simulated time is that of client 0 and its link, which stand for the place with the data.
State: x at the server; nothing at the clients, which are all evaluated with x.
Asynchronous form: x <- w when client 0 answers; the others have no data, and their answers change nothing. No alpha.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from pflsim.federation import Answer, Client, Federation, Round, Tensors
from pflsim.learning.task import Task, Work


@dataclass(frozen=True)
class Centralised:
    """One model on everybody's data."""

    mixes: ClassVar[bool] = False
    pools: ClassVar[bool] = True

    def participants(self, all: Tensors, round: Round, drawn: Sequence[int]) -> Sequence[int]:
        return [0] if drawn else []

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        samples = task.training.samples(task.n_samples, self._steps(task, down))
        return Work(samples, samples)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return you, {"w": task.sgd(down["x"], steps=self._steps(task, down))}

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"], "clients": torch.tensor([len(round.federation.clients)])}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        trained = [answer.up["w"] for answer in answers if answer.n_samples]
        return {"x": trained[-1]} if trained else all

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return self.server_step(all, [answer], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self.server_step(all, answers, round)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"global": down["x"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 0.0

    def _steps(self, task: Task, down: Tensors) -> int:
        return task.steps * (1 if task.training.local_epochs else int(down["clients"]))
