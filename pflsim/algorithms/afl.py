"""AFL: one model that is good for the worst mixture of the clients, found by a game between w and the mixture.

Mohri, Sivek, Suresh: Agnostic Federated Learning, ICML 2019, Algorithm 1 (Stochastic-AFL).

Objective: min over w of max over q of sum_i q_i f_i(w), q in the simplex (q_i >= 0, sum_i q_i = 1).              (4)

A round:
    server      sends x to the clients in S_t
    client i    L_i = f_i(x);  u_i <- one SGD step on f_i from x  (`local`: the R steps of the training)
                sends u_i and L_i
    server      x <- x - sum_i q_i (x - u_i), i in S_t                                     w descends
                q_i <- q_i + gamma L_i, i in S_t;  q <- the nearest point of the simplex    q ascends
Communication per visit: 1 vector [d] down (x), 1 up (u_i) and a number (L_i). Compute per visit: the steps, and a
forward pass over all training samples for L_i. State: x and q [N] at the server, q_i = n_i / n at first.
Who is not drawn keeps its q_i but for the projection. The measure `q` is the mixture after each round.

Asynchronous form: x <- (1 - a) x + a u_i with a = N q_i times the schedule's weight, 1 at most; q_i is raised by
s(age) gamma L_i, and projected. Buffered: x <- x + (1 / K) sum_j N q_j rate s(age_j) (u_j - x_j).

Readings. The original takes one gradient a round and has everybody work; several steps are FedTorch's. If only some
work, the q_i of S_t add up to less than 1 and the step shrinks: `normalise` divides by their sum, as happens by itself
where not everybody answered. FedTorch takes for L_i the loss of the last batch, after training (`loss = "last"`), and
lets no q_i fall below 1e-3 (`floor`). gamma = 0 with equal numbers of steps is FedAvg weighed by samples.
Evaluated: `global` is x; the accuracy of the worst clients is what the method is about.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.simplex import onto_simplex
from pflsim.learning.task import Task, Work


@dataclass(frozen=True)
class AFL:
    """x follows the clients as q weighs them; q follows the losses."""

    gamma: float = 0.1  # step size of q
    local: bool = False  # take the training's R steps a visit instead of one
    loss: Literal["all", "batch", "last"] = "all"  # L_i: f_i(x) on all training data, on the first batch, or FedTorch's
    normalise: bool | None = None  # divide by the sum of the q_i that answered; None: where not everybody did
    floor: float = 0.0  # the least q_i after the projection; FedTorch has 0.001

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.gamma", self.gamma, 0)
        if not 0 <= self.floor * len(federation.clients) < 1:
            reason = f"must be from 0 and below 1 / {len(federation.clients)}, one over the number of clients"
            raise DescriptionError("algorithm.floor", self.floor, reason)
        return []

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        steps, training, n = self._steps(task), task.training, task.n_samples
        taken = training.samples(n, steps)
        looked_at = {
            "all": n,
            "batch": training.samples(n, min(1, steps)),
            "last": taken - training.samples(n, max(0, steps - 1)),
        }
        return Work(taken + looked_at[self.loss], taken)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        x, steps = down["x"], self._steps(task)
        u = task.sgd(x, steps=steps)
        if self.loss == "all":
            loss = task.loss(x)
        else:
            batches = list(task.batches(steps))
            batch, w = (batches[:1], x) if self.loss == "batch" else (batches[-1:], u)
            loss = sum(task.batch_loss(w, one) for one in batch)
        return you, {"u": u, "loss": x.new_tensor([loss])}

    def server_init(self, federation: Federation) -> Tensors:
        n = torch.from_numpy(federation.sizes).double()
        return {"x": federation.initial, "q": n / n.sum()}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        if not answers:
            return all
        q, x = all["q"], all["x"].double()
        shares = [float(q[answer.client]) * answer.weight for answer in answers]
        everybody = len(answers) == len(round.federation.clients)
        normalise = not everybody if self.normalise is None else self.normalise
        whole = sum(shares) if normalise else 1.0
        step = torch.zeros_like(x)
        for answer, share in zip(answers, shares, strict=True):
            step.add_(x - answer.up["u"], alpha=share / (whole or 1.0))  # where nobody counts, x stays
        return {"x": (x - step).to(all["x"].dtype), "q": self._raised(q, answers)}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        share = min(1.0, weight * self._importance(all, answer))
        return {"x": mixed(all["x"], answer.up["u"], share), "q": self._raised(all["q"], [answer])}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        starts, ends = [answer.down["x"] for answer in answers], [answer.up["u"] for answer in answers]
        shares = [weight * self._importance(all, answer) for answer, weight in zip(answers, weights, strict=True)]
        return {"x": moved(all["x"], starts, ends, shares), "q": self._raised(all["q"], answers)}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"global": down["x"]}

    def measures(self, all: Tensors, round: Round) -> dict[str, torch.Tensor]:
        return {"q": all["q"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)

    def _steps(self, task: Task) -> int:
        return task.steps if self.local else min(1, task.steps)

    def _importance(self, all: Tensors, answer: Answer) -> float:
        """N q_i, which is 1 where everybody counts alike."""
        return len(all["q"]) * float(all["q"][answer.client])

    def _raised(self, q: torch.Tensor, answers: Sequence[Answer]) -> torch.Tensor:
        """q after a step up the losses, back in the simplex."""
        q = q.clone()
        for answer in answers:
            q[answer.client] += self.gamma * answer.weight * float(answer.up["loss"])
        q = onto_simplex(q)
        if self.floor:
            q = q.clamp(min=self.floor)
            q = q / q.sum()
        return q
