"""MOCHA in the dual: related support vector machines, by stochastic dual coordinate ascent; for linear models.

Smith, Chiang, Sanjabi, Talwalkar: Federated Multi-Task Learning, NeurIPS 2017, Algorithm 1.

Objective: min over W = [w_1, ..., w_N] and Omega of
    sum_t (1 / n_t) sum_i max(0, 1 - y_i x_i w_t) + (lambda / 2) tr(W Omega W^T),   Sigma = Omega^-1.             (1)
With a_i = alpha_i y_i, alpha_i in [0, 1], the dual variable of a sample, and b_t = (1 / n_t) sum_i a_i x_i, it is
W = B Sigma / lambda: w_t = (1 / lambda) sum_s Sigma_ts b_s.

A round:
    server      sends w_t, Sigma_tt and rho to each t in S_t
    client t    dw = 0; for each of H samples (x, y), drawn in shuffled passes:                               LocalSDCA
                    a' = y clip( lambda n_t (1 - y x (w_t + rho dw)) / (Sigma_tt rho ||x||^2) + a y, 0, 1 )
                    dw <- dw + Sigma_tt (a' - a) x / (lambda n_t),   b_t <- b_t + (a' - a) x / n_t,   a <- a'
                keeps all a, sends b_t
    server      replaces b_t;  W <- B Sigma / lambda, row by row
                now and then  Sigma <- (W^T W)^(1/2) / tr(W^T W)^(1/2)                                    (Omega update)
                rho = max over t of sum_s |Sigma_ts| / Sigma_tt: how far the clients' changes add up
Communication per visit: 1 vector [d] down (w_t) and two numbers, 1 up (b_t). Compute per visit: H, as many samples as
the training's steps have, a product and an addition each (charged as a sample forward and backward).
State: B, W [N, d] and Sigma [N, N] at the server; a [n_t, C] and b_t [d] at the client, all from 0: w0 is not used. Who
is not drawn keeps them. Sigma = I / N at first, which relates nobody; it is learned anew after `relate_every` visits of
the average client, as soon as everybody has answered since (one that had not would be held to be unrelated to all, and
later move without bounds); 0: never, and then this is N support vector machines. No eigenvalue is below 1e-7.
Asynchronous form: an arrival replaces b_t and moves all rows of W by what has changed; no alpha, and no weight for its
age, as B must stay what the a_i say.

Readings. The paper sends the change of b_t; b_t itself costs the same, and an answer that was lost is made good by the
next one. Classes are as many machines, each one class against the others, with one Sigma for all of them (two classes:
twice the same machine). A bias is the weight of a feature that is 1 in each sample. A sample with ||x|| = 0 is passed
over. Step size, momentum and weight decay do not occur.
Evaluated: `personalised` is w_t, whose outputs are compared as logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, require_number
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import Layout

_LEAST_EIGENVALUE = 1e-7


@dataclass(frozen=True)
class MochaDual:
    """Dual coordinate ascent on each client; the server knows how the tasks are related."""

    lam: float = 1e-4  # lambda, the weight of the regularisation
    relate_every: int = 10  # visits of the average client after which Sigma is learned anew; 0: never

    mixes: ClassVar[bool] = False

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.lam", self.lam, 0, above=True)
        require_number("algorithm.relate_every", self.relate_every, 0)
        shapes = [len(shape) for shape in federation.layout.shapes]
        if shapes not in ([2], [2, 1]):
            raise DescriptionError("algorithm.name", "mocha-dual", "is for linear models alone: use model.name = mlr")
        if any(isinstance(label, float) for own in federation.labels for label in own):
            raise DescriptionError("algorithm.name", "mocha-dual", "separates classes; these data have none")
        return []

    def client_init(self, client: Client) -> Tensors:
        outputs = client.layout.shapes[0][0]
        a = torch.zeros(client.n_samples, outputs, dtype=torch.float64)
        return {"a": a, "b": torch.zeros(len(client.initial), dtype=torch.float64)}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        task.spend(self.client_work(task, down))
        layout, (x, sign) = task.network.layout, _samples(task)
        sigma, rho = down["relation"].double().tolist()
        a, b = you["a"].numpy().copy(), _rows(you["b"], layout)
        w, dw, n, norms = _rows(down["w"], layout), np.zeros_like(b), len(x), (x**2).sum(1)
        for i in _order(task):
            if norms[i] == 0.0:
                continue
            room = 1.0 - sign[i] * ((w + rho * dw) @ x[i])  # [C], how much of the margin is missing
            alpha = self.lam * n * room / (sigma * rho * norms[i]) + a[i] * sign[i]
            change = sign[i] * alpha.clip(0.0, 1.0) - a[i]
            a[i] += change
            dw += sigma / (self.lam * n) * np.outer(change, x[i])
            b += np.outer(change, x[i]) / n
        kept = _vector(b, layout)
        return {"a": torch.from_numpy(a), "b": kept}, {"b": kept.to(down["w"].dtype)}

    def server_init(self, federation: Federation) -> Tensors:
        N, d = len(federation.clients), len(federation.initial)
        b, none = torch.zeros(N, d, dtype=torch.float64), torch.zeros(N, dtype=torch.int64)
        return {"b": b, "w": b, "sigma": torch.eye(N, dtype=torch.float64) / N, "answers": none}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        kind, sigma = round.federation.initial.dtype, all["sigma"]
        rho = (sigma.abs().sum(1) / sigma.diagonal()).max()
        return {
            "w": all["w"][client].to(kind),
            "relation": torch.stack([sigma[client, client], rho]).to(kind),
        }

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        b, w, sigma, count = all["b"].clone(), all["w"].clone(), all["sigma"], all["answers"].clone()
        for answer in answers:
            change = answer.up["b"].double() - b[answer.client]
            b[answer.client] += change
            w.addr_(sigma[:, answer.client], change, alpha=1.0 / self.lam)
            count[answer.client] += 1
        if self.relate_every and count.min() > 0 and count.sum() >= self.relate_every * len(b):
            sigma, count = _related(w), torch.zeros_like(count)
            w = sigma @ b / self.lam
        return {"b": b, "w": w, "sigma": sigma, "answers": count}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return self.server_step(all, [answer], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self.server_step(all, answers, round)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": down["w"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(federation.clients) * len(answers)


def _related(w: torch.Tensor) -> torch.Tensor:
    """(W^T W)^(1/2) over its trace [N, N], of the tasks' models as rows [N, d]; no eigenvalue is below 1e-7."""
    values, directions = torch.linalg.eigh(w @ w.T)
    roots = values.clamp(min=0.0).sqrt()
    roots = (roots / roots.sum().clamp(min=_LEAST_EIGENVALUE)).clamp(min=_LEAST_EIGENVALUE)
    roots = roots / roots.sum()
    related: torch.Tensor = (directions * roots) @ directions.T
    return related


def _samples(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """A client's samples [n, p], with a 1 at the end where the model has a bias, and their signs [n, C].

    A sign is 1 for the sample's own class, -1 for any other one.
    """
    batches, ((outputs, features), *bias) = task.fixed_batches(), task.network.layout.shapes
    if not batches:
        return np.zeros((0, features + len(bias))), np.zeros((0, outputs))
    x = torch.cat([batch.x for batch in batches]).reshape(-1, features).double().numpy()
    y = torch.cat([batch.y for batch in batches]).numpy()
    signs = np.where(y[:, None] == np.arange(outputs), 1.0, -1.0)
    return np.hstack([x, np.ones((len(x), len(bias)))]), signs


def _order(task: Task) -> list[int]:
    """Which of its n samples a client takes in each of H steps: shuffled passes."""
    n, rng = task.n_samples, task.rng("dual")
    H = task.training.samples(n, task.steps)
    passes = [rng.permutation(n) for _ in range(-(-H // max(1, n)))]
    return [int(i) for one in passes for i in one][:H]


def _rows(w: torch.Tensor, layout: Layout) -> np.ndarray:
    """A model [d] as one row of weights, and its bias, for each output [C, p]."""
    weight, *bias = (layout.view(w.double(), name) for name in layout.names)
    return np.hstack([weight.numpy(), *(one[:, None].numpy() for one in bias)])


def _vector(rows: np.ndarray, layout: Layout) -> torch.Tensor:
    """The model [d] of such rows; the inverse of `_rows`."""
    features = layout.shapes[0][1]
    return torch.from_numpy(np.concatenate([rows[:, :features].ravel(), rows[:, features:].ravel()]))
