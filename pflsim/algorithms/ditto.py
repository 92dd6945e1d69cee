"""Ditto: a global model by FedAvg, and beside it a personal model of each client that is pulled towards it.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021,
Algorithm 1.

Objective of client i: min over v of h_i(v; w*) = f_i(v) + (lambda / 2) ||v - w*||^2, w* the solution of
FedAvg. (Ditto)

A round:
    server      sends x to the clients in S_t
    client i    w   <- R SGD steps on f_i from x
                R_p times  v_i <- v_i - eta_p (g_i(v_i; b) + lambda (v_i - x))        line 6
    server      x <- x + mean of (w_i - x), i in S_t
Communication per visit: 1 vector [d] down (x), 1 up (w_i - x). State: x at the server; v_i [d] at the client,
from w0 and never sent. A client that is not drawn keeps its v_i. The anchor x is the model received, not the
trained w.

order = "sequential": the two branches draw their own batches, so the global one is FedAvg bit for bit.
order = "interleave": one loop in which both branches use the same batch, as in the authors' code.
Asynchronous form: x alone is mixed or buffered, as FedAvg's; v_i stays at its client and knows no staleness.
lambda = 0 trains v alone, as Local does. Stability: eta_p lambda < 2, without overshoot <= 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number, require_stable
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class Ditto:
    """FedAvg for x; v_i follows its own data and x."""

    lam: float = 1.0  # lambda, how strongly v_i is pulled towards x; the paper tries 0.1, 1 and 2
    personal_steps: int | None = None  # R_p; None: as many as the global branch takes, R
    eta_p: float | None = None  # step size of v; None: that of the training, eta, at every round
    order: Literal["sequential", "interleave"] = "sequential"
    allow_unstable: bool = False

    def check(self, federation: Federation) -> list[str]:
        training = federation.training
        require_number("algorithm.lam", self.lam, 0)
        if self.personal_steps is not None:
            require_number("algorithm.personal_steps", self.personal_steps, 1)
        if self.eta_p is not None:
            require_number("algorithm.eta_p", self.eta_p, 0, above=True)
        if self.order == "interleave" and training.momentum:
            raise DescriptionError("algorithm.order", self.order, "has no momentum; set training.momentum = 0")
        if self.order == "interleave" and self.personal_steps is not None:
            reason = "takes one step of each branch in turn; leave algorithm.personal_steps out"
            raise DescriptionError("algorithm.order", self.order, reason)
        factor = self._eta_p(training.step_size) * self.lam
        return require_stable("algorithm.lam", self.lam, factor, "eta_p lambda", self.allow_unstable)

    def client_init(self, client: Client) -> Tensors:
        return {"v": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        steps = task.steps if self.personal_steps is None else self.personal_steps
        personal = task.training.samples(task.n_samples, steps)
        return task.work() + Work(personal, personal)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        x, v, eta_p = down["x"], you["v"], self._eta_p(task.step_size)
        if self.order == "interleave":
            w, v = self._interleaved(x, v, eta_p, task)
        else:
            w = task.sgd(x)
            v = task.sgd(
                v,
                steps=self.personal_steps,
                step_size=eta_p,
                extra=lambda v: self.lam * (v - x),
                purpose="personal",
            )
        return {"v": v}, {"dw": w - x}

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        mean = average([answer.up["dw"] for answer in answers], [answer.weight for answer in answers])
        return all if mean is None else {"x": all["x"] + mean}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {"x": mixed(all["x"], answer.down["x"] + answer.up["dw"], weight)}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        starts = [answer.down["x"] for answer in answers]
        ends = [start + answer.up["dw"] for start, answer in zip(starts, answers, strict=True)]
        return {"x": moved(all["x"], starts, ends, weights)}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": you["v"], "global": down["x"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)

    def _eta_p(self, eta: float) -> float:
        return eta if self.eta_p is None else self.eta_p

    def _interleaved(
        self, x: torch.Tensor, v: torch.Tensor, eta_p: float, task: Task
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(w, v) after R steps of each, a batch serving both."""
        w, decay = x, task.training.weight_decay
        for batch in task.batches(task.steps):
            w = w.add(task.grad(w, batch).add_(w, alpha=decay), alpha=-task.step_size)
            slope = task.grad(v, batch).add_(v, alpha=decay).add_(v - x, alpha=self.lam)
            v = v.add(slope, alpha=-eta_p)
        return w, v
