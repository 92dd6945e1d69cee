"""MOCHA, mean-regularised: a model per client, pulled towards the mean of all; for softmax models, by SGD.

Smith, Chiang, Sanjabi, Talwalkar: Federated Multi-Task Learning, NeurIPS 2017, with the relationship matrix of
Evgeniou, Pontil (2004) that the FedU paper fixes. The dual form with a learned matrix is `mocha-dual`.

Objective: min over W = [w_1, ..., w_N] of sum_k f_k(w_k) + (lambda / 2) tr(W Omega W^T),  Omega = (I - 1 1^T / N)^2
Omega is idempotent, so that tr(W Omega W^T) = sum_k ||w_k - wbar||^2 and its gradient in w_k is 2 (w_k - wbar): it is
the Laplacian of the complete graph of unit weights, divided by N.

A round:
    server      sends wbar to the clients in S_t
    client k    R times  w_k <- w_k - eta (g_k(w_k; b) + lambda (w_k - wbar'))
                wbar' = wbar + (w_k - w_k at the start) / m: the own column is live, the others are frozen
                keeps w_k and sends it
    server      replaces column k of W;  wbar <- mean of the m columns of W
Communication per visit: 1 vector [d] down (wbar) and a number (m), 1 up (w_k). State: W [N, d], the last known w_k, and
wbar at the server; w_k at the client. A client that is not drawn keeps its column, which counts in wbar.
Asynchronous form: an arrival replaces its column; no alpha, and no weight for its age.

Readings. FedU's paper says that Omega is the Laplacian itself; that is this with lambda N for lambda. In its authors'
code Omega is a constant matrix and scaled by 1e-10, so that their "MOCHA" is Local: lambda = 0. wbar is over all
clients; `columns = "sampled"`: over those that are drawn together (over all where there are no rounds).
Made for convex models. Stability: eta lambda < 2, without overshoot <= 1. lambda = 0 is Local.
Evaluated: `personalised` is w_k.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pflsim.federation import Answer, Client, Federation, Round, Tensors, require_number, require_stable
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class Mocha:
    """w_k follows its own data and the mean of all w."""

    lam: float = 0.01  # lambda, how strongly the columns are pulled together
    columns: Literal["all", "sampled"] = "all"  # whose mean it is
    allow_unstable: bool = False

    mixes: ClassVar[bool] = False

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.lam", self.lam, 0)
        factor = federation.training.step_size * self.lam
        warnings = require_stable("algorithm.lam", self.lam, factor, "eta lambda", self.allow_unstable)
        if federation.layout is not None and sum(len(shape) > 1 for shape in federation.layout.shapes) > 1:
            warnings.append("mocha is made for convex models, such as mlr: a mean of networks may mean nothing")
        return warnings

    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        start, wbar, others = you["w"], down["wbar"], 1.0 - 1.0 / int(down["m"])
        apart = start - wbar
        w = task.sgd(start, extra=lambda w: self.lam * (apart + others * (w - start)))  # lambda (w - wbar')
        return {"w": w}, {"w": w}

    def server_init(self, federation: Federation) -> Tensors:
        return {"w": federation.initial.repeat(len(federation.clients), 1), "wbar": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        cohort = round.cohort
        if self.columns == "all" or client not in cohort or len(cohort) == len(all["w"]):
            return {"wbar": all["wbar"], "m": torch.tensor([len(all["w"])])}
        return {"wbar": _mean(all["w"][list(cohort)]), "m": torch.tensor([len(cohort)])}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        if not answers:
            return all
        w = all["w"].clone()
        for answer in answers:
            w[answer.client] = answer.up["w"]
        return {"w": w, "wbar": _mean(w)}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return self.server_step(all, [answer], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self.server_step(all, answers, round)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": you["w"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(federation.clients)


def _mean(columns: torch.Tensor) -> torch.Tensor:
    """The unweighted mean [d] of some columns, which lie as rows [m, d]."""
    mean = average(list(columns), [1.0] * len(columns))
    assert mean is not None  # there is at least one
    return mean
