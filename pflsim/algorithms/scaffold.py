"""SCAFFOLD: FedAvg whose local steps are corrected for the drift between the clients.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning, ICML 2020, Algorithm 1.

Objective: min over x of (1 / N) sum_i f_i(x).

A round:
    server      sends x and c to the clients in S_t
    client i    R times  y <- y - eta (g_i(y; b) - c_i + c),  from y = x                 line 10
                c_i' = g_i(x) on all its training data                                   line 12, option I
                c_i' = c_i - c + (x - y) / (R eta)                                       line 12, option II
                sends dy = y - x and dc = c_i' - c_i, and keeps c_i'                     line 13
    server      x <- x + eta_g mean of dy, i in S_t                                      line 16
                c <- c + (|S_t| / N) mean of dc                                          line 17
Communication per visit: 2 vectors [d] down (x, c), 2 up (dy, dc).
Asynchronous form: x <- x + eta_g s(age) dy / N and c <- c + dc / N on each arrival; c is not damped, or it would not
stay the mean of all c_i. No alpha. Buffered: x <- x + eta_g mean of rate s(age) dy.
State: x, c [d] at the server, c_i [d] at the client; c and all c_i start at 0. A client that is not drawn
keeps its c_i. Invariant: c is the mean of all c_i, whoever is drawn; that is why the means are unweighted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, require_number
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average
from pflsim.learning.whole_data import full_gradient


@dataclass(frozen=True)
class Scaffold:
    """Control variates c_i and c turn each local step towards the mean gradient."""

    option: Literal["I", "II"] = "II"  # how c_i is renewed
    eta_g: float = 1.0  # step size of the server

    mixes: ClassVar[bool] = False

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.eta_g", self.eta_g, 0, above=True)
        if self.option == "II" and federation.training.momentum:
            reason = "takes the mean gradient from x - y, which momentum falsifies; set training.momentum = 0"
            raise DescriptionError("algorithm.option", self.option, reason)
        return []

    def client_init(self, client: Client) -> Tensors:
        return {"c": torch.zeros_like(client.initial)}

    def client_work(self, task: Task, down: Tensors) -> Work:
        whole = task.n_samples if self.option == "I" else 0  # one pass over the data for g_i(x)
        return task.work() + Work(whole, whole)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        x, c, c_i = down["x"], down["c"], you["c"]
        drift = c - c_i
        y = task.sgd(x, extra=lambda _: drift)
        if self.option == "I":
            renewed = full_gradient(task, x)
        else:
            travelled = task.steps * task.step_size  # R eta, 0 where a schedule has run out: then nothing was learnt
            renewed = (x - y) / travelled - drift if travelled else c_i
        return {"c": renewed}, {"dy": y - x, "dc": renewed - c_i}

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial, "c": torch.zeros_like(federation.initial)}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"], "c": all["c"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        ones = [1.0] * len(answers)
        dy = average([answer.up["dy"] for answer in answers], [answer.weight for answer in answers])
        dc = average([answer.up["dc"] for answer in answers], ones)
        if dy is None or dc is None:
            return all
        share = len(answers) / len(round.federation.clients)  # |S_t| / N
        return {"x": all["x"] + self.eta_g * dy, "c": all["c"] + share * dc}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return self._moved(all, [answer], [answer.weight / len(round.federation.clients)], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self._moved(all, answers, [weight / len(answers) for weight in weights], round)

    def _moved(self, all: Tensors, answers: Sequence[Answer], shares: Sequence[float], round: Round) -> Tensors:
        """x + eta_g sum_j share_j dy_j, and c + sum_j dc_j / N: not damped, or it would not be the mean of all c_i."""
        x, c, N = all["x"].double(), all["c"].double(), len(round.federation.clients)
        for answer, share in zip(answers, shares, strict=True):
            x = x.add(answer.up["dy"].double(), alpha=self.eta_g * share)
            c = c.add(answer.up["dc"].double(), alpha=1 / N)
        return {"x": x.to(all["x"].dtype), "c": c.to(all["c"].dtype)}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"global": down["x"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 4.0 * len(federation.initial) * len(answers)
