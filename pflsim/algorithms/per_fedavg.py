"""Per-FedAvg: a model from which one gradient step on a client's own data makes a good personal model (MAML).

Fallah, Mokhtari, Ozdaglar: Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach, NeurIPS 2020, Algorithm 1, and its two approximations of section 5.

Objective: min over w of (1 / N) sum_i F_i(w),  F_i(w) = f_i(w - alpha grad f_i(w)).                       (3)
Its gradient is (I - alpha H_i(w)) grad f_i(v), v = w - alpha grad f_i(w), H_i the Hessian of f_i.         (4)

A round:
    server      sends x to the clients in S_t
    client i    w = x; R times: three batches b1, b2, b3,
                    v  = w - alpha g_i(w; b1)                                              line 7
                    g2 = g_i(v; b2)
                    FO:  w <- w - beta g2
                    HF:  h = (g_i(w + delta' g2; b3) - g_i(w - delta' g2; b3)) / (2 delta')
                         w <- w - beta (g2 - alpha h),                                     line 8
                         delta' = delta / max(1, ||g2||), and h = 0 where g2 = 0
                sends w
    server      x <- mean of w_i, i in S_t
Communication per visit: 1 vector [d] down (x), 1 up (w_i). Gradients per visit: 2 R (FO), 4 R (HF).
State: x at the server; nothing at the client. A client that is not drawn does nothing.
Asynchronous form: x is mixed or buffered, as FedAvg's.

Evaluated: `personalised` is x - alpha g_i(x; b) with a batch b of the client's training data, `global` is x.

Readings. CGPFL compares with HF (the default); the code of pFedMe and of FedU is FO, and so are FedU's numbers.
The authors weigh clients alike. beta is the training's step size unless it is given: a single learning rate in a
paper is the outer one. pFedMe's code adapts on two batches of the *test* data, with alpha and then with beta:
`adapt_on = "test_reference"` repeats it, and leaks what is tested. Weight decay is part of f_i. b2 is the batch
that FedAvg would draw: alpha = 0 is FedAvg with step size beta. Stability: alpha L < 1, L the smoothness of f_i.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Literal

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.task import Batch, Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class PerFedAvg:
    """FedAvg on the loss after one step of adaptation."""

    variant: Literal["HF", "FO"] = "HF"  # with the Hessian by a difference of gradients, or without it (first order)
    alpha: float = 0.01  # step size of the adaptation; values in use are 0.005 to 0.03
    beta: float | None = None  # step size of w; None: that of the training, eta, at every round
    delta: float = 1e-3  # how far from w the difference of gradients is taken
    weights: Literal["uniform", "samples"] = "uniform"
    adapt_on: Literal["train", "test_reference"] = "train"  # which data the evaluated model is adapted on

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.alpha", self.alpha, 0)
        require_number("algorithm.delta", self.delta, 0, above=True)
        if self.beta is not None:
            require_number("algorithm.beta", self.beta, 0, above=True)
        if federation.training.momentum:
            reason = "per-fedavg has steps of its own, without momentum: set it to 0"
            raise DescriptionError("training.momentum", federation.training.momentum, reason)
        leaks = 'algorithm.adapt_on = "test_reference": models are adapted to the very data that they are tested on'
        return [leaks] if self.adapt_on == "test_reference" else []

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work(passes=4 if self.variant == "HF" else 2)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w, beta = down["x"], self._beta(task.step_size)
        streams = [task.batches(task.steps, purpose) for purpose in ("adapt", "batch", "hessian")]
        for b1, b2, b3 in zip(*streams, strict=True):
            v = w.add(self._grad(task, w, b1), alpha=-self.alpha)
            g2 = self._grad(task, v, b2)
            if self.variant == "HF":
                g2 = g2.sub(self._curved(task, w, g2, b3), alpha=self.alpha)
            w = w.add(g2, alpha=-beta)
        return you, {"w": w}

    def _curved(self, task: Task, w: torch.Tensor, g2: torch.Tensor, b3: Batch) -> torch.Tensor:
        """h, the Hessian at `w` times g2 [d]."""
        length = float(g2.norm())
        delta = self.delta / max(1.0, length)
        ahead, behind = (self._grad(task, w.add(g2, alpha=side), b3) for side in (delta, -delta))
        return (ahead - behind) / (2 * delta) if length > 0.0 else torch.zeros_like(w)

    def _grad(self, task: Task, w: torch.Tensor, batch: Batch) -> torch.Tensor:
        return task.grad(w, batch).add_(w, alpha=task.training.weight_decay)

    def _beta(self, eta: float) -> float:
        return eta if self.beta is None else self.beta

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
        x, steps = down["x"], [self.alpha]
        if self.adapt_on == "test_reference":
            task = replace(task, part=SimpleNamespace(train=task.part.test))  # the leak of the code that it repeats
            steps = [self.alpha, self._beta(task.step_size)]
        v = x
        for step, batch in zip(steps, task.batches(len(steps), "personalise"), strict=False):  # none without samples
            v = v.add(self._grad(task, v, batch), alpha=-step)
        return {"personalised": v, "global": x}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)
