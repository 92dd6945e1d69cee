"""Ditto without a server: peers gossip about a common model, and the personal model of each is pulled towards its copy.

An extension of ours: Ditto (Li, Hu, Beirami, Smith, ICML 2021, Algorithm 1, `pflsim.algorithms.ditto`) with D-PSGD
(Lian et al., 2017, `pflsim.algorithms.dpsgd`) in the place of its FedAvg. Neither paper has it.

Objective of peer k: min over v of f_k(v) + (lambda / 2) ||v - w*||^2, w* the solution of D-PSGD.

A round of peer k:
    w'_k <- R SGD steps on f_k from w_k with step size eta
    R_p times  v_k <- v_k - eta_p (g_k(v_k; b) + lambda (v_k - w_k))     Ditto's line 6, w_k for the model received
    sends w'_k to its neighbours, and has w'_l of each
    w_k  <- W_kk w'_k + sum_l W_kl w'_l                                  W as in D-PSGD
The anchor is w_k as it was mixed in the round before, not the trained w'_k; the two branches draw their own batches, so
that the common one is D-PSGD bit for bit. On the full graph every w_k is the mean of all, and this is Ditto with
S_t = all. lambda = 0 trains v alone, as Local does.
Old models of neighbours, pairs and random neighbours touch w alone, as they do in D-PSGD; v_k stays at its peer.
Communication per round: 1 vector [d] to each neighbour, 1 from each. State: w_k and v_k [d]; v_k is never sent.

Stability: eta_p lambda < 2, without overshoot <= 1; the mixing is a convex combination, whatever the graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pflsim.errors import DescriptionError
from pflsim.federation import Client, Federation, Neighbour, Round, Tensors, pulled, require_number, require_stable
from pflsim.learning.task import Task, Work


@dataclass(frozen=True)
class DDitto:
    """D-PSGD for w; v_k follows its own data and w_k."""

    lam: float = 1.0  # lambda, how strongly v_k is pulled towards w_k; Ditto's paper tries 0.1, 1 and 2
    personal_steps: int | None = None  # R_p; None: as many as the common branch takes, R
    eta_p: float | None = None  # step size of v; None: that of the training, eta, at every round
    allow_unstable: bool = False

    def check(self, federation: Federation) -> list[str]:
        if federation.topology is None:
            raise DescriptionError("topology", None, "dditto needs a graph between the peers, such as ring or regular")
        require_number("algorithm.lam", self.lam, 0)
        if self.personal_steps is not None:
            require_number("algorithm.personal_steps", self.personal_steps, 1)
        if self.eta_p is not None:
            require_number("algorithm.eta_p", self.eta_p, 0, above=True)
        factor = self._eta_p(federation.training.step_size) * self.lam
        return require_stable("algorithm.lam", self.lam, factor, "eta_p lambda", self.allow_unstable)

    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial, "v": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        steps = task.steps if self.personal_steps is None else self.personal_steps
        personal = task.training.samples(task.n_samples, steps)
        return task.work() + Work(personal, personal)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w = you["w"]
        v = task.sgd(
            you["v"],
            steps=self.personal_steps,
            step_size=self._eta_p(task.step_size),
            extra=lambda v: self.lam * (v - w),
            purpose="personal",
        )
        return {"w": task.sgd(w), "v": v}, {}

    def peer_shows(self, you: Tensors) -> Tensors:
        return {"w": you["w"]}

    def peer_step(self, you: Tensors, neighbours: Sequence[Neighbour], round: Round) -> Tensors:
        others = [neighbour.shown["w"] for neighbour in neighbours]
        return {**you, "w": pulled(you["w"], others, [neighbour.share for neighbour in neighbours])}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": you["v"], "global": you["w"]}

    def _eta_p(self, eta: float) -> float:
        return eta if self.eta_p is None else self.eta_p
