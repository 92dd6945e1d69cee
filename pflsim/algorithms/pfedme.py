"""pFedMe: personal models as the proximal points of a common one (Moreau envelopes).

T. Dinh, Tran, Nguyen: Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020, Algorithm 1.

Objective: min over w of (1 / N) sum_i F_i(w),  F_i(w) = min over theta of f_i(theta) + (lambda / 2) ||theta -
w||^2.
Its gradient is lambda (w - theta_i(w)), theta_i(w) being the minimiser.                               (2)-(4)

A round:
    server      sends x to the clients in S_t
    client i    w = x; R times: one batch b,
                    Q times  theta <- theta - eta_p (g_i(theta; b) + lambda (theta - w) + mu theta)   (7)
                    w <- w - eta lambda (w - theta)                                                   line 8
                sends w, keeps theta
    server      x <- (1 - beta) x + beta * mean of w_i, i in S_t                                      line 12
Communication per visit: 1 vector [d] down (x), 1 up (w_i). Gradients per visit: R Q.
State: x at the server; theta_i and w_i [d] at the client, and eta_p.

Without `lam` lambda is 15, as in most of the paper's runs, or 1 / eta where 15 would overshoot (eta of the first
round).

Asynchronous form: x <- (1 - beta a) x + beta a w_i with the schedule's weight a (1 / |S| is like the rounds'), or
buffered; theta_i goes on from where it was.

Readings. The authors' code averages with weights n_i, lets all clients train in every round (`train_all`;
only the drawn ones are averaged), has mu = 0.001 for every model, and goes on from the last theta in the next
outer step. What it prints as the accuracy of the personalised model is that of w_i after the visit
(`eval_model = "w_local"`). Without `eta_p` a client takes min(0.1, 1 / (L + lambda)), L the smoothness of its
f_i at w0 by power iteration. Stability: eta lambda < 2, without overshoot <= 1; eta_p (L + lambda) < 2. beta
> 1 is over-relaxation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number, require_stable
from pflsim.learning.task import Task, Training, Work
from pflsim.learning.vector import average
from pflsim.learning.whole_data import smoothness

PAPERS_LAMBDA = 15.0


@dataclass(frozen=True)
class PFedMe:
    """theta_i minimises f_i near w; w follows theta_i; x is the mean of the w_i."""

    lam: float | None = None  # lambda, how strongly theta and w pull at each other; None: 15, or 1 / eta if smaller
    inner_steps: int = 5  # Q (the paper's K)
    eta_p: float | None = None  # step size of theta; None: min(0.1, 1 / (L + lambda)) for each client
    beta: float = 1.0  # how far the server goes towards the mean
    mu: float = 0.001  # weight decay of theta
    theta_init: Literal["round", "step", "persist"] = "round"  # theta starts at x, at w in each step, or where it was
    weights: Literal["uniform", "samples"] = "uniform"
    train_all: bool = False  # let every client work, and average the drawn ones
    eval_model: Literal["theta", "w_local"] = "theta"  # which is the headline; both are evaluated
    allow_unstable: bool = False

    def check(self, federation: Federation) -> list[str]:
        training = federation.training
        self._check_ranges()
        for name in ("momentum", "weight_decay"):
            if getattr(training, name):
                reason = "pfedme has steps of its own: set it to 0 (algorithm.mu is the weight decay of theta)"
                raise DescriptionError(f"training.{name}", getattr(training, name), reason)
        lam = self._lam(training)
        warnings = require_stable("algorithm.lam", lam, training.step_size * lam, "eta lambda", self.allow_unstable)
        if self.lam is None and lam < PAPERS_LAMBDA:
            warnings.append(f"algorithm.lam is {lam:.4g} = 1 / eta, as the paper's {PAPERS_LAMBDA:g} would overshoot")
        if self.eta_p is not None:
            factor = self.eta_p * (lam + self.mu)
            formula = "eta_p (lambda + mu), before L is added,"
            warnings += require_stable("algorithm.eta_p", self.eta_p, factor, formula, self.allow_unstable)
        return warnings

    def participants(self, all: Tensors, round: Round, drawn: Sequence[int]) -> Sequence[int]:
        return round.federation.clients if self.train_all else drawn

    def client_init(self, client: Client) -> Tensors:
        eta_p = self.eta_p
        if eta_p is None:
            L = smoothness(client.task, client.initial, client.rng("smoothness"))
            eta_p = 1.0 / max(10.0, L + self._lam(client.training))
        w0 = client.initial
        return {"theta": w0, "w": w0, "eta_p": torch.tensor(eta_p, dtype=torch.float64)}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work(passes=self.inner_steps)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w = down["x"]
        theta = you["theta"] if self.theta_init == "persist" else w
        eta_p, lam = float(you["eta_p"]), self._lam(task.training)
        for batch in task.batches(task.steps):
            if self.theta_init == "step":
                theta = w
            for _ in range(self.inner_steps):
                slope = task.grad(theta, batch).add_(theta - w, alpha=lam).add_(theta, alpha=self.mu)
                theta = theta.add(slope, alpha=-eta_p)
            w = w - task.step_size * lam * (w - theta)
        return {**you, "theta": theta, "w": w}, {"w": w}

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        drawn = [answer for answer in answers if answer.client in round.cohort]
        p = [answer.weight * (answer.n_samples if self.weights == "samples" else 1) for answer in drawn]
        mean = average([answer.up["w"] for answer in drawn], p)
        return all if mean is None else {"x": (1.0 - self.beta) * all["x"] + self.beta * mean}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {"x": mixed(all["x"], answer.up["w"], self.beta * weight)}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        starts, ends = [answer.down["x"] for answer in answers], [answer.up["w"] for answer in answers]
        return {"x": moved(all["x"], starts, ends, [self.beta * weight for weight in weights])}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        theta, w = {"personalised": you["theta"]}, {"local": you["w"]}
        first, second = (theta, w) if self.eval_model == "theta" else (w, theta)
        return {**first, **second, "global": down["x"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)

    def _lam(self, training: Training) -> float:
        if self.lam is not None:
            return self.lam
        return PAPERS_LAMBDA if training.step_size * PAPERS_LAMBDA <= 1.0 else 1.0 / training.step_size

    def _check_ranges(self) -> None:
        require_number("algorithm.inner_steps", self.inner_steps, 1)
        require_number("algorithm.mu", self.mu, 0)
        require_number("algorithm.beta", self.beta, 0, above=True)
        if self.lam is not None:
            require_number("algorithm.lam", self.lam, 0)
        if self.eta_p is not None:
            require_number("algorithm.eta_p", self.eta_p, 0, above=True)
