"""Descent on a Moreau envelope: what pFedMe, its form without a server and CGPFL do at a client, and what they refuse.

F(w) = min over theta of f(theta) + (lambda / 2) ||theta - w||^2 has the gradient lambda (w - theta_i(w)). A visit is R
outer steps; in each, Q steps of theta on one batch with step size eta_p, then one of w towards theta:

    theta <- theta - eta_p (g(theta; b) + lambda (theta - w) + mu theta)      Q times, with the same batch b
    w     <- w - beta (w - theta)                                             beta = eta lambda, or as a method has it
"""

from dataclasses import dataclass
from typing import Literal

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Client, Tensors, require_number, require_stable
from pflsim.learning.task import Task, Training
from pflsim.learning.whole_data import smoothness

Start = Literal["round", "step", "persist"]
"""Where theta starts: at w in each round, at w in each outer step, or where it was."""


@dataclass(frozen=True)
class Moreau:
    """The settings of a method that descends on an envelope, under the names that its description has for them."""

    method: str
    lam: float | None
    papers_lambda: float
    """What stands for `lam` where it is left out, if that does not overshoot."""
    inner_steps: int
    eta_p: float | None
    mu: float
    theta_init: Start
    allow_unstable: bool

    def check(self, training: Training, *, beta_is_eta_lambda: bool = True) -> list[str]:
        """Raises DescriptionError for what cannot work; returns warnings."""
        require_number("algorithm.inner_steps", self.inner_steps, 1)
        require_number("algorithm.mu", self.mu, 0)
        if self.lam is not None:
            require_number("algorithm.lam", self.lam, 0)
        if self.eta_p is not None:
            require_number("algorithm.eta_p", self.eta_p, 0, above=True)
        for name in ("momentum", "weight_decay"):
            if getattr(training, name):
                reason = f"{self.method} has steps of its own: set it to 0 (algorithm.mu is the weight decay of theta)"
                raise DescriptionError(f"training.{name}", getattr(training, name), reason)
        lam, warnings = self.strength(training), []
        if beta_is_eta_lambda:
            factor = training.step_size * lam
            warnings += require_stable("algorithm.lam", lam, factor, "eta lambda", self.allow_unstable)
        if self.lam is None and lam < self.papers_lambda:
            papers = f"the paper's {self.papers_lambda:g}"
            warnings.append(f"algorithm.lam is {lam:.4g} = 1 / eta, as {papers} would overshoot")
        if self.eta_p is not None:
            factor, formula = self.eta_p * (lam + self.mu), "eta_p (lambda + mu), before L is added,"
            warnings += require_stable("algorithm.eta_p", self.eta_p, factor, formula, self.allow_unstable)
        return warnings

    def strength(self, training: Training) -> float:
        """Lambda: the setting, or what stands for it where it is left out."""
        if self.lam is not None:
            return self.lam
        return self.papers_lambda if training.step_size * self.papers_lambda <= 1.0 else 1.0 / training.step_size

    def begin(self, client: Client) -> Tensors:
        """The private state: theta and w at w0, and eta_p, which without a setting is min(0.1, 1 / (L + lambda))."""
        eta_p, w0 = self.eta_p, client.initial
        if eta_p is None:
            L = smoothness(client.task, w0, client.rng("smoothness"))
            eta_p = 1.0 / max(10.0, L + self.strength(client.training))
        return {"theta": w0, "w": w0, "eta_p": torch.tensor(eta_p, dtype=torch.float64)}

    def descend(self, you: Tensors, w: torch.Tensor, task: Task, beta: float | None = None) -> Tensors:
        """The private state after a visit that starts from `w`; `beta` without a value is eta lambda."""
        theta = you["theta"] if self.theta_init == "persist" else w
        eta_p, lam = float(you["eta_p"]), self.strength(task.training)
        beta = task.step_size * lam if beta is None else beta
        for batch in task.batches(task.steps):
            if self.theta_init == "step":
                theta = w
            for _ in range(self.inner_steps):
                slope = task.grad(theta, batch).add_(theta - w, alpha=lam).add_(theta, alpha=self.mu)
                theta = theta.add(slope, alpha=-eta_p)
            w = w - beta * (w - theta)
        return {**you, "theta": theta, "w": w}
