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

from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average
from pflsim.moreau import Moreau

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
        require_number("algorithm.beta", self.beta, 0, above=True)
        return self._envelope.check(federation.training)

    def participants(self, all: Tensors, round: Round, drawn: Sequence[int]) -> Sequence[int]:
        return round.federation.clients if self.train_all else drawn

    def client_init(self, client: Client) -> Tensors:
        return self._envelope.begin(client)

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work(passes=self.inner_steps)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        you = self._envelope.descend(you, down["x"], task)
        return you, {"w": you["w"]}

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

    @property
    def _envelope(self) -> Moreau:
        shared = (self.inner_steps, self.eta_p, self.mu, self.theta_init, self.allow_unstable)
        return Moreau("pfedme", self.lam, PAPERS_LAMBDA, *shared)
