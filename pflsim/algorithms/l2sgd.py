"""L2SGD: a coin decides between local steps and a move of all models towards their mean; L2SGD+ reduces variance.

Hanzely, Richtarik: Federated Learning of a Mixture of Global and Local Models, arXiv 2002.05516, Algorithms 1 (L2GD)
and 2 (L2SGD+).

Objective: min over x_1, ..., x_N of (1 / N) sum_i f_i(x_i) + (lambda / 2N) sum_i ||x_i - xbar||^2.               (2)

At every step one coin for all, 1 with probability p:
    0: local    x_i <- x_i - eta / (s (1 - p)) g_i(x_i; b)
    1: mix      x_i <- (1 - th) x_i + th xbar,   th = eta lambda / (s p)
s = 1: eta and lambda are those of one client. `scale_N`: s = N, as the paper has it.

A mix does not change xbar, so that something travels only where a mix follows a local step: p (1 - p) times per step.
A round is what lies between two such moments; the server throws its coins:
    server      mixes ~ geometric(1 - p), steps ~ geometric(p), both from 1; sends xbar and the two
    client i    `mixes` times mix, then `steps` local steps; keeps x_i and sends it
    server      replaces x_i in its table;  xbar <- mean of the table
The mixes before the first steps find x_i = xbar and do nothing. p = 0: R steps a round and no mix, which is Local.
p = 1: one mix a round and no step. The number of steps of the training counts only for p = 0.

L2SGD+ (`variance_reduced`) keeps J_ij, the last gradient of each of a client's m fixed batches, and Psi_i:
    0: g = (g_ij(x_i) - J_ij) / (s (1 - p)) + mean_j J_ij / s + Psi_i / s;           J_ij <- g_ij(x_i)
    1: g = lambda (x_i - xbar) / (s p) - (1 / p - 1) Psi_i / s + mean_j J_ij / s;    Psi_i <- lambda (x_i - xbar)
    x_i <- x_i - eta g,   j drawn alike,   g_ij weighed so that mean_j g_ij = grad f_i
A mix then moves xbar too: a round is one mix and the steps (from 0) up to the next.

Communication per visit: 1 vector [d] down (xbar), 1 up (x_i), and three numbers down. State: the table of the last
known x_i, [N, d], and xbar at the server; x_i, and m + 1 vectors more for L2SGD+, at the client. Of clients that are
not drawn the last known x_i counts, and only who is drawn mixes (the paper has everybody). Rows of clients that leave
stay. Asynchronous form: an arrival replaces its x_i, and the client mixes with the newest xbar when it works next; no
alpha, and no weight for its age. Stability: th < 2, and a convex combination up to 1. lambda = 0 is Local with step
size eta / (1 - p); th = 1 is FedAvg with a random number of local steps.
Evaluated: `personalised` is x_i, `global` is xbar.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, require_number, require_stable
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class L2SGD:
    """x_i follows its own data, and at random moments the mean of all."""

    lam: float = 0.1  # lambda, how strongly the models are pulled together; values in use are 0.1 to 1
    p: float = 0.2  # chance of a mix
    variance_reduced: bool = False  # L2SGD+
    scale_N: bool = False  # noqa: N815  # divide by N, as the paper does
    allow_unstable: bool = False

    mixes: ClassVar[bool] = False

    def check(self, federation: Federation) -> list[str]:
        training = federation.training
        require_number("algorithm.lam", self.lam, 0)
        if not 0 <= self.p <= 1:
            raise DescriptionError("algorithm.p", self.p, "must be from 0 to 1")
        if self.variance_reduced and not 0 < self.p < 1:
            raise DescriptionError("algorithm.p", self.p, "must be above 0 and below 1 for variance_reduced = true")
        if self.variance_reduced and training.momentum:
            reason = "l2sgd with variance_reduced = true has steps of its own, without momentum: set it to 0"
            raise DescriptionError("training.momentum", training.momentum, reason)
        th = self._th(training.step_size, self._scale(len(federation.clients)))
        formula = "eta lambda / (N p)" if self.scale_N else "eta lambda / p"
        return require_stable("algorithm.lam", self.lam, th, formula, self.allow_unstable)

    def client_init(self, client: Client) -> Tensors:
        x = client.initial
        if not self.variance_reduced:
            return {"x": x}
        batches = -(-client.n_samples // client.training.batch)
        return {"x": x, "J": torch.zeros(batches, len(x), dtype=x.dtype), "Psi": torch.zeros_like(x)}

    def client_work(self, task: Task, down: Tensors) -> Work:
        steps = self._steps(task, down)
        if self.variance_reduced:
            batch, n = task.training.batch, task.n_samples
            samples = sum(min(batch, n - j * batch) for j in _drawn(task, steps))
        else:
            samples = task.training.samples(task.n_samples, steps)
        return Work(samples, samples)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        mixes, _, N = down["coins"].tolist()
        steps, scale = self._steps(task, down), self._scale(N)
        if self.variance_reduced:
            you = self._mixed_plus(you, down["xbar"], mixes, task.step_size, scale)
            you = self._local_plus(you, steps, task, scale)
            return you, {"x": you["x"]}
        x = mixed(you["x"], down["xbar"], 1.0 - (1.0 - self._th(task.step_size, scale)) ** mixes)
        if steps:
            x = task.sgd(x, steps=steps, step_size=task.step_size / (scale * (1.0 - self.p)))
        return {"x": x}, {"x": x}

    def _mixed_plus(self, you: Tensors, xbar: torch.Tensor, mixes: int, eta: float, scale: int) -> Tensors:
        x, mean, Psi = you["x"], you["J"].sum(0) / max(1, len(you["J"])), you["Psi"]
        for _ in range(mixes):
            apart = self.lam * (x - xbar)
            x = x - eta / scale * (apart / self.p - (1.0 / self.p - 1.0) * Psi + mean)
            Psi = apart
        return {**you, "x": x, "Psi": Psi}

    def _local_plus(self, you: Tensors, steps: int, task: Task, scale: int) -> Tensors:
        x, J, batches = you["x"], you["J"].clone(), task.fixed_batches()
        for j in _drawn(task, steps):
            share = len(batches) * len(batches[j]) / task.n_samples
            g = share * task.grad(x, batches[j]).add_(x, alpha=task.training.weight_decay)
            x = x - task.step_size / scale * ((g - J[j]) / (1.0 - self.p) + J.mean(0) + you["Psi"])
            J[j] = g
        return {**you, "x": x, "J": J}

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial.repeat(len(federation.clients), 1), "xbar": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"xbar": all["xbar"], "coins": torch.tensor([*self._coins(round), len(round.federation.clients)])}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        if not answers:
            return all
        x = all["x"].clone()
        for answer in answers:
            x[answer.client] = answer.up["x"]
        xbar = average(list(x), [1.0] * len(x))
        assert xbar is not None  # there is somebody
        return {"x": x, "xbar": xbar}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return self.server_step(all, [answer], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self.server_step(all, answers, round)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": you["x"], "global": down["xbar"]}

    def measures(self, all: Tensors, round: Round) -> dict[str, int]:
        mixes, steps = self._coins(round)
        return {"mixes": mixes, "local_steps": steps} if self.p else {}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(federation.clients)

    def _coins(self, round: Round) -> tuple[int, int]:
        """How many mixes and then local steps make this round; the same whoever asks, and however often."""
        if self.p in (0.0, 1.0):
            return int(self.p), 0
        rng = round.rng("coins")
        mixes, steps = int(rng.geometric(1.0 - self.p)), int(rng.geometric(self.p))
        return (1, steps - 1) if self.variance_reduced else (mixes, steps)

    def _steps(self, task: Task, down: Tensors) -> int:
        """The local steps of this visit: none for a client without samples."""
        if self.p == 0.0 or not task.n_samples:
            return task.steps
        return task.within_limit(int(down["coins"][1]))

    def _scale(self, clients: int) -> int:
        return clients if self.scale_N else 1

    def _th(self, eta: float, scale: int) -> float:
        return eta * self.lam / (scale * self.p) if self.p else 0.0


def _drawn(task: Task, steps: int) -> list[int]:
    """Which of its fixed batches a client takes in each of so many steps."""
    batches = -(-task.n_samples // task.training.batch)
    drawn: list[int] = task.rng("fixed batch").integers(batches, size=steps).tolist() if batches else []
    return drawn
