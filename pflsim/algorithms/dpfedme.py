"""pFedMe without a server: personal models are the proximal points of models about which the peers gossip.

An extension of ours: pFedMe (T. Dinh, Tran, Nguyen, NeurIPS 2020, Algorithm 1, `pflsim.algorithms.pfedme`), in which a
peer's own mixed model stands for the server's. The paper does not have it.

Objective: min over w of (1 / N) sum_k F_k(w),  F_k(w) = min over theta of f_k(theta) + (lambda / 2) ||theta - w||^2.

A round of peer k:
    w'_k = w_k; R times: one batch b,
        Q times  theta_k <- theta_k - eta_p (g_k(theta_k; b) + lambda (theta_k - w'_k) + mu theta_k)      (7)
        w'_k <- w'_k - eta lambda (w'_k - theta_k)                                                        line 8
    sends w'_k to its neighbours, and has w'_l of each
    w_k <- W_kk w'_k + sum_l W_kl w'_l            line 12 with beta = 1; W of Metropolis and Hastings, as in D-PSGD
On the full graph every w_k is the mean of all, and this is pFedMe with S_t = all and uniform weights.
Old models of neighbours, pairs and random neighbours touch w alone; theta_k stays at its peer.
Communication per round: 1 vector [d] to each neighbour, 1 from each. Gradients per round: R Q. State: w_k and theta_k
[d], and eta_p; theta_k is never sent.

Without `lam` lambda is 15, as in most of pFedMe's runs, or 1 / eta where 15 would overshoot (eta of the first round).
Without `eta_p` a peer takes min(0.1, 1 / (L + lambda)), L the smoothness of its f_k at w0 by power iteration.
Stability: eta lambda < 2, without overshoot <= 1; eta_p (L + lambda) < 2; the mixing is a convex combination,
whatever the graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pflsim.errors import DescriptionError
from pflsim.federation import Client, Federation, Neighbour, Round, Tensors, pulled
from pflsim.learning.task import Task, Work
from pflsim.moreau import Moreau

PAPERS_LAMBDA = 15.0


@dataclass(frozen=True)
class DPFedMe:
    """theta_k minimises f_k near w_k; w_k follows theta_k, and is averaged with the neighbours'."""

    lam: float | None = None  # lambda, how strongly theta and w pull at each other; None: 15, or 1 / eta if smaller
    inner_steps: int = 5  # Q (the paper's K)
    eta_p: float | None = None  # step size of theta; None: min(0.1, 1 / (L + lambda)) for each peer
    mu: float = 0.001  # weight decay of theta
    theta_init: Literal["round", "step", "persist"] = (
        "round"  # theta starts at w_k, at w'_k in each step, or where it was
    )
    allow_unstable: bool = False

    def check(self, federation: Federation) -> list[str]:
        if federation.topology is None:
            raise DescriptionError("topology", None, "dpfedme needs a graph between the peers, such as ring or regular")
        return self._envelope.check(federation.training)

    def client_init(self, client: Client) -> Tensors:
        return self._envelope.begin(client)

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work(passes=self.inner_steps)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return self._envelope.descend(you, you["w"], task), {}

    def peer_shows(self, you: Tensors) -> Tensors:
        return {"w": you["w"]}

    def peer_step(self, you: Tensors, neighbours: Sequence[Neighbour], round: Round) -> Tensors:
        others = [neighbour.shown["w"] for neighbour in neighbours]
        return {**you, "w": pulled(you["w"], others, [neighbour.share for neighbour in neighbours])}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": you["theta"], "global": you["w"]}

    @property
    def _envelope(self) -> Moreau:
        shared = (self.inner_steps, self.eta_p, self.mu, self.theta_init, self.allow_unstable)
        return Moreau("dpfedme", self.lam, PAPERS_LAMBDA, *shared)
