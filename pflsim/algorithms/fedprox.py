"""FedProx: FedAvg whose local training is held near the model that was received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020,
Algorithm 2.

Objective of client i in a round: min over w of f_i(w) + (mu / 2) ||w - x||^2.                             (2)

A round:
    server      sends x to the clients in S_t
    client i    R times  w <- w - eta (g_i(w; b) + mu (w - x)),  from w = x
    server      x <- sum_i p_i w_i / sum_i p_i, i in S_t
Communication per visit: 1 vector [d] down (x), 1 up (w_i). State: x at the server; nothing at the client.
Asynchronous form: x <- (1 - a) x + a w_i; buffered, x <- x + mean of rate s(age) (w_i - x_i).
A visit that is cut short (fewer steps R) is folded in like any other: the method is made for partial work. With
`drop_percent` a share of the cohort does part of its work only (see `pflsim.stragglers`), the same clients as under
FedAvg, which drops what they send; so does `stragglers` = "drop".
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
from pflsim.stragglers import require_share, steps_of, straggled, told, work_of


@dataclass(frozen=True)
class FedProx:
    """x <- the mean of what proximal local SGD made of x."""

    mu: float = 0.01  # mu, the weight of the proximal term; the paper tries 0.001, 0.01, 0.1 and 1
    weights: Literal["samples", "uniform"] = "samples"  # p_i
    drop_percent: float = (
        0.0  # the share, 0 to 1, of a cohort that does only part of its work; the paper has 0, 0.5, 0.9
    )
    stragglers: Literal["aggregate", "drop"] = "aggregate"  # what becomes of their answers
    allow_unstable: bool = False

    def check(self, federation: Federation) -> list[str]:
        require_share(self.drop_percent)
        require_number("algorithm.mu", self.mu, 0)
        factor = federation.training.step_size * self.mu
        return require_stable("algorithm.mu", self.mu, factor, "eta mu", self.allow_unstable)

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return work_of(task, down)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        x = down["x"]
        return you, {"w": task.sgd(x, steps=steps_of(task, down), extra=lambda w: self.mu * (w - x))}

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"], **told(self.drop_percent, client, round)}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        answers = [answer for answer in answers if self._takes(answer)]
        p = [answer.weight * (answer.n_samples if self.weights == "samples" else 1) for answer in answers]
        mean = average([answer.up["w"] for answer in answers], p)
        return all if mean is None else {"x": mean}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {"x": mixed(all["x"], answer.up["w"], weight)} if self._takes(answer) else all

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        taken = [place for place, answer in enumerate(answers) if self._takes(answer)]
        if not taken:
            return all
        starts, ends = [answers[k].down["x"] for k in taken], [answers[k].up["w"] for k in taken]
        return {"x": moved(all["x"], starts, ends, [weights[k] for k in taken])}

    def _takes(self, answer: Answer) -> bool:
        return self.stragglers == "aggregate" or not straggled(answer)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"global": down["x"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)
