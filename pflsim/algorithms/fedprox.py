"""FedProx: FedAvg whose local training is held near the model that was received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020,
Algorithm 2.

Objective of client i in a round: min over w of f_i(w) + (mu / 2) ||w - x||^2.                             (2)

A round:
    server      sends x to the clients in S_t
    client i    R times  w <- w - eta (g_i(w; b) + mu (w - x)),  from w = x
    server      x <- sum_i p_i w_i / sum_i p_i, i in S_t
Communication per visit: 1 vector [d] down (x), 1 up (w_i). State: x at the server; nothing at the client.
A visit that is cut short (fewer steps R) is folded in like any other: the method is made for partial work.
mu = 0 is FedAvg. Stability of the proximal term alone: eta mu < 2, without overshoot <= 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pflsim.federation import (
    Answer,
    Client,
    Federation,
    Round,
    Tensors,
    mixed,
    moved,
    require_number,
    require_stable,
)
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class FedProx:
    """x <- the mean of what proximal local SGD made of x."""

    mu: float = 0.01  # mu, the weight of the proximal term; the paper tries 0.001, 0.01, 0.1 and 1
    weights: Literal["samples", "uniform"] = "samples"  # p_i
    allow_unstable: bool = False

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.mu", self.mu, 0)
        factor = federation.training.step_size * self.mu
        return require_stable("algorithm.mu", self.mu, factor, "eta mu", self.allow_unstable)

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        x = down["x"]
        return you, {"w": task.sgd(x, extra=lambda w: self.mu * (w - x))}

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        p = [answer.weight * (answer.n_samples if self.weights == "samples" else 1) for answer in answers]
        mean = average([answer.up["w"] for answer in answers], p)
        return all if mean is None else {"x": mean}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {"x": mixed(all["x"], answer.up["w"], weight)}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        starts, ends = [answer.down["x"] for answer in answers], [answer.up["w"] for answer in answers]
        return {"x": moved(all["x"], starts, ends, weights)}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"global": down["x"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)
