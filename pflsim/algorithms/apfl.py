"""APFL: each client mixes a global model with a model of its own, and may learn how much of each.

Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning, arXiv 2003.13461, Algorithm 1.

Objective of client i: min over v of f_i(vbar_i),  vbar_i = a_i v + (1 - a_i) w*,  w* the solution of FedAvg.   (2)

A round:
    server      sends x to the clients in S_t
    client i    w = x; R times: one batch b,
                    w' <- w - eta g_i(w; b)
                    vbar = a_i v + (1 - a_i) w           (ref = "old"; "new": with w')
                    v  <- v - eta_v a_i g_i(vbar; b)
                    adaptive, with the first batch:  a_i <- a_i - eta <v - w, g_i(vbar; b)>, kept in [0, 1]     (10)
                    w  <- w'
                sends w, keeps v and a_i
    server      x <- mean of w_i, i in S_t, unweighted
Communication per visit: 1 vector [d] down (x), 1 up (w_i). Compute per visit: 2 R gradients; R forward passes more
where outputs are mixed. State: x at the server; v_i [d], from w0, and a_i at the client, never sent. A client that is
not drawn keeps both. One batch serves both models, as in the paper; what the server learns is FedAvg's whatever a is.
Asynchronous form: x alone is mixed or buffered; v_i and a_i stay at the client and know no staleness.

mix = "parameter": vbar is a vector, as in the paper; its gradient has the factor a_i (a code without it is
    eta_v / a_i). mix = "output": the loss is that of the logits a_i h(v) + (1 - a_i) h(w), as in the authors' own
    FedTorch; the same for models that are linear in their parameters, with ref = "new" as there. A third reading, v
    trained alone and then overwritten by the mixture, is not APFL and not offered.
Readings. In (10) v and w are those of which vbar was made. `a_decay` = 0.02 is FedTorch's pull of a_i towards 0.
Evaluated: `personalised` is a_i v + (1 - a_i) x, or with the client's last w (`evaluate_with = "last"`); `global` is x.
Weight decay belongs to the loss of vbar, and where outputs are mixed to v. a = 1 is Local, a = 0 FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.task import Batch, Predictor, Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class APFL:
    """FedAvg for w; v_i learns what a mixture of both needs on client i."""

    a: float = 0.5  # a_i at the start, the share of v_i; values in use are 0.25, 0.5 and 0.75
    adaptive: bool = False  # whether a_i is learned, once a visit
    mix: Literal["parameter", "output"] = "parameter"
    ref: Literal["old", "new"] = "old"  # whether v meets w before or after the step that w makes on the same batch
    eta_v: float | None = None  # step size of v; None: that of the training, eta, at every round
    a_decay: float = 0.0  # added to the gradient of a_i, times a_i
    evaluate_with: Literal["received", "last"] = "received"  # which w is mixed in for the evaluation

    def check(self, federation: Federation) -> list[str]:
        training = federation.training
        if not 0 <= self.a <= 1:
            raise DescriptionError("algorithm.a", self.a, "must be from 0 to 1")
        require_number("algorithm.a_decay", self.a_decay, 0)
        if self.eta_v is not None:
            require_number("algorithm.eta_v", self.eta_v, 0)
        if training.momentum:
            reason = "apfl trains two models in one loop, without momentum: set it to 0"
            raise DescriptionError("training.momentum", training.momentum, reason)
        if self.mix == "output" and any(isinstance(label, float) for own in federation.labels for label in own):
            raise DescriptionError("algorithm.mix", self.mix, "mixes the logits of classes; these data have none")
        if self.a_decay and not self.adaptive:
            raise DescriptionError("algorithm.a_decay", self.a_decay, "needs algorithm.adaptive = true")
        return []

    def client_init(self, client: Client) -> Tensors:
        last = {"w": client.initial} if self.evaluate_with == "last" else {}
        return {"v": client.initial, "a": torch.tensor([self.a], dtype=torch.float64), **last}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work(passes=2, forwards=1 if self.mix == "output" else 0)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w, v, a = down["x"], you["v"], float(you["a"])
        eta_v, decay = task.step_size if self.eta_v is None else self.eta_v, task.training.weight_decay
        derivatives = self._of_outputs if self.mix == "output" else self._of_parameters
        for number, batch in enumerate(task.batches(task.steps)):
            before = w
            w = w.add(task.grad(w, batch).add_(w, alpha=decay), alpha=-task.step_size)
            ref = before if self.ref == "old" else w
            slope, slope_of_a = derivatives(v, ref, a, batch, task)
            v = v.add(slope, alpha=-eta_v)
            if self.adaptive and number == 0:
                a = min(1.0, max(0.0, a - task.step_size * (slope_of_a + self.a_decay * a)))
        last = {"w": w} if "w" in you else {}
        return {"v": v, "a": torch.full_like(you["a"], a), **last}, {"w": w}

    def _of_parameters(
        self, v: torch.Tensor, ref: torch.Tensor, a: float, batch: Batch, task: Task
    ) -> tuple[torch.Tensor, float]:
        """The gradient [d] of f_i(a v + (1 - a) ref) with respect to v, and the derivative with respect to a."""
        vbar = _mixture(v, ref, a)
        g = task.grad(vbar, batch).add_(vbar, alpha=task.training.weight_decay)
        return g * a, float((v - ref).double() @ g.double()) if self.adaptive else 0.0

    def _of_outputs(
        self, v: torch.Tensor, ref: torch.Tensor, a: float, batch: Batch, task: Task
    ) -> tuple[torch.Tensor, float]:
        """The same two of the cross-entropy of a h(v) + (1 - a) h(ref)."""
        other = task.logits(ref, batch)
        slopes_of_a = []

        def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            mixture = _mixture(logits, other, a)
            with torch.no_grad():
                excess = mixture.softmax(1) - functional.one_hot(labels, mixture.shape[1])
                slopes_of_a.append(float(((logits - other) * excess).sum()) / len(labels))
            return functional.cross_entropy(mixture, labels)

        g = task.grad(v, batch, loss=loss).add_(v, alpha=task.training.weight_decay)
        return g, slopes_of_a[0]

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        mean = average([answer.up["w"] for answer in answers], [answer.weight for answer in answers])
        return all if mean is None else {"x": mean}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {"x": mixed(all["x"], answer.up["w"], weight)}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        starts, ends = [answer.down["x"] for answer in answers], [answer.up["w"] for answer in answers]
        return {"x": moved(all["x"], starts, ends, weights)}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> dict[str, torch.Tensor | Predictor]:
        v, a, w, x = you["v"], float(you["a"]), you.get("w", down["x"]), down["x"]
        if self.mix == "parameter":
            return {"personalised": _mixture(v, w, a), "global": x}
        logits = task.network.logits
        return {"personalised": lambda inputs: _mixture(logits(v, inputs), logits(w, inputs), a), "global": x}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)


def _mixture(own: torch.Tensor, other: torch.Tensor, a: float) -> torch.Tensor:
    """a own + (1 - a) other, exactly one of the two where a is 0 or 1."""
    return own.mul(a).add(other, alpha=1.0 - a)
