"""FedU: one model per client, pulled towards the models of its neighbours in a given graph.

Dinh, Vu, Tran, Dao, Zhang: A New Look and Convergence Rate of Federated Multi-Task Learning with Laplacian
Regularization, Algorithm 1.

Objective: min over W = (w_1, ..., w_N) of sum_k f_k(w_k) + (eta_r / 2) W^T (L kron I) W                   (1)
with L = D - A the Laplacian of the graph, so that W^T (L kron I) W = (1/2) sum_k sum_l a_kl ||w_k - w_l||^2.

A round:
    server      sends w_k to each k in S_t
    client k    w_{k,R} <- R SGD steps on f_k from w_k with step size mu
    server      v_k = w_{k,R} for k in S_t, v_k = w_k for the others
                w_k <- v_k - c sum_l a_kl (v_k - v_l)   for k in S_t,   c = mu~ eta_r,  mu~ = mu R
                                                        (normalised: c = mu~ eta_r / lambda_max(L))
                w_k <- v_k                               for the others
Asynchronous form: the round's rule with S_t = {k}, on the table as it is, and the step times s(age); no alpha.
Communication per visit: 1 vector [d] down (w_k), 1 up (w_{k,R}). State: all w_k, [N, d], at the server, which
also knows the graph; nothing at the client.

Readings. The factor 1/2 in (1) is inferred; a source without it is `reg_scale` = 2, and the authors' code has
0.5. The code takes the number of epochs for R (`reg_R`), sums over drawn neighbours only (`neighbours`), and
overwrites the models one after the other (`order = "gauss_seidel"`), which no longer preserves their mean.
Stability: c lambda_max(L) < 2, without overshoot <= 1; a convex combination when c max_k D_k <= 1. eta_r = 0
is Local. lambda_max grows with the number of clients in most graphs, so that a fixed eta_r that suits 40 clients
is unstable for 300. `normalised` puts L / lambda_max(L) in the place of L: then mu~ eta_r is the factor of
stability itself, and one eta_r does for any number of clients and any weights. On a graph that changes, the edges of
the round pull, lambda_max is a bound of all rounds, and the server's work is that of the first round's edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pflsim.errors import DescriptionError
from pflsim.federation import (
    Answer,
    Client,
    Federation,
    Round,
    Tensors,
    laplacian_coefficient,
    pulled,
    require_number,
    require_stable,
)
from pflsim.learning.task import Task, Work


@dataclass(frozen=True)
class FedU:
    """Local SGD at the clients, one Laplacian step at the server."""

    eta_r: float = 0.01  # eta, the weight of the regularisation; the paper tries 0.001 to 1
    reg_R: Literal["epochs", "steps"] = "epochs"  # noqa: N815  # what R means in mu~ = mu R
    reg_scale: float = 1.0  # a factor on the regularisation
    normalised: bool = False  # divide the graph by lambda_max(L), so that eta_r suits any number of clients
    neighbours: Literal["all", "sampled"] = "all"  # whom the sum over l runs over
    order: Literal["jacobi", "gauss_seidel"] = "jacobi"  # all at once, or in place in ascending id
    allow_unstable: bool = False

    mixes: ClassVar[bool] = False

    def check(self, federation: Federation) -> list[str]:
        if federation.graph is None:
            raise DescriptionError("topology", None, "fedu needs a graph between the clients, such as similar")
        require_number("algorithm.eta_r", self.eta_r, 0)
        require_number("algorithm.reg_scale", self.reg_scale, 0)
        factor = self._c(federation, federation.training.step_size) * federation.lambda_max
        formula = "c lambda_max(L) with c = mu R eta_r reg_scale" + " / lambda_max(L)" * self.normalised
        return require_stable("algorithm.eta_r", self.eta_r, factor, formula, self.allow_unstable)

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return you, {"w": task.sgd(down["w"])}

    def server_init(self, federation: Federation) -> Tensors:
        return {"w": federation.initial.repeat(len(federation.clients), 1)}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"w": all["w"][client]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        return self._pulled(all, answers, [answer.weight for answer in answers], round)

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return self._pulled(all, [answer], [answer.weight], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self._pulled(all, answers, weights, round)

    def _pulled(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        """The table with the answers in it, each pulled towards its neighbours, by its weight times the usual."""
        federation = round.federation
        graph = federation.graph_in(round.number)
        c = self._c(federation, round.step_size)
        v = all["w"].clone()
        for answer in answers:
            v[answer.client] = answer.up["w"]
        w = v if self.order == "gauss_seidel" else v.clone()
        drawn = {answer.client: weight for answer, weight in zip(answers, weights, strict=True)}  # of two the later
        others = federation.clients if self.neighbours == "all" else list(drawn)
        for k, s in drawn.items():
            linked = [other for other in others if graph[k, other] > 0.0]
            w[k] = pulled(v[k], [v[other] for other in linked], c * s * graph[k, linked])
        return {"w": w}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": down["w"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        edges = 0 if federation.graph is None else np.count_nonzero(federation.graph[[a.client for a in answers]])
        return 2.0 * len(federation.initial) * (edges + len(answers))

    def _c(self, federation: Federation, step_size: float) -> float:
        strength = self.eta_r * self.reg_scale
        return laplacian_coefficient(federation, step_size, strength, self.reg_R, normalised=self.normalised)
