"""Stratified: a global and a personal model trained side by side, and a predictor that mixes what they put out.

"A personalized federated learning method based on stratified sampling in edge network" (in Chinese), algorithms 1
and 2. Its cohorts are those of cyclic groups: `schedule.sampling = { kind = "groups", groups = G }`.

Objective: w* = argmin (1 / N) sum_i f_i(w), and for each client
    v_i = argmin over v of F_i(v, w*),  F_i(v, w) = loss of beta h(v; x) + (1 - beta) h(w; x)              (mixture)

A round:
    server      sends w to B clients of the group whose turn it is
    client i    R times  one batch b;  w' <- w - eta g_i(w; b)                                         algorithm 2
                                       v_i <- v_i - eta_c grad_v F_i(v_i, w'; b);  w <- w'
                sends w, keeps v_i
    server      w <- mean of what came back, unweighted                                                algorithm 1
Communication per visit: 1 vector [d] down (w), 1 up (w_i). State: w at the server; v_i [d] at the client, from w0 and
never sent (and its w_i, if that is evaluated). Compute per visit: 2R gradients and R forward passes. A client that is
not drawn keeps its v_i.

mix = "prob": h are class probabilities p, the loss is -log q_y with q = beta p(v) + (1 - beta) p(w), and
    d loss / d z_v = beta (p(v)_y / q_y) (p(v) - e_y) for the logits z_v. It is worked out from logarithms.
mix = "logit": h are logits, and the loss their cross-entropy; for models that are linear in their parameters this is
    APFL with a fixed mixing weight.

Readings. The paper bounds h by 1, which points to probabilities (the default); APFL's code mixes logits. Its listing
updates w before v (ref = "new", the default), its equation 11 takes the w from before (ref = "old"). Which w meets v in
an evaluation is not said: the server's newest (the default), or w_i as the client's own last visit left it, which it
then keeps. The figures name local procedures without defining them: steps on shuffled passes (the default), on batches
drawn with replacement ("sgd"), or on all samples ("gd"); a visit has R steps in each of them, so that with "gd" and
`training.local_epochs` it passes over the data R times. `training.weight_decay` holds for both models.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved
from pflsim.learning.task import Drawing, Predictor, Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class Stratified:
    """FedAvg for w; v_i learns what is missing from w on client i."""

    beta: float = 0.5  # the share of the personal model in the mixture
    eta_c: float | None = None  # step size of v; None: that of the training, eta, at every round
    mix: Literal["prob", "logit"] = "prob"  # what is mixed
    ref: Literal["new", "old"] = "new"  # whether v meets w after or before the step that w makes on the same batch
    local_procedure: Drawing = "shuffled"  # what a step sees: "sgd" draws with replacement, "gd" takes all samples
    evaluated_w: Literal["newest", "last"] = "newest"  # v is evaluated with the server's w, or that of its last visit

    def check(self, federation: Federation) -> list[str]:
        if not 0 <= self.beta <= 1:
            raise DescriptionError("algorithm.beta", self.beta, "must be from 0 to 1")
        if self.eta_c is not None and not 0 <= self.eta_c < math.inf:
            raise DescriptionError("algorithm.eta_c", self.eta_c, "must be finite and at least 0")
        if federation.training.momentum:
            reason = "stratified trains two models in one loop, without momentum: set it to 0"
            raise DescriptionError("training.momentum", federation.training.momentum, reason)
        if any(isinstance(label, float) for own in federation.labels for label in own):
            raise DescriptionError("algorithm.name", "stratified", "mixes classifiers; these data have no classes")
        return []

    def client_init(self, client: Client) -> Tensors:
        return self._kept(client.initial, client.initial)

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work(passes=2, forwards=1, drawing=self.local_procedure)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w, v, decay = down["w"], you["v"], task.training.weight_decay
        eta_c = task.step_size if self.eta_c is None else self.eta_c
        for batch in task.batches(task.steps, drawing=self.local_procedure):
            before = w
            w = w.add(task.grad(w, batch).add_(w, alpha=decay), alpha=-task.step_size)
            other = task.logits(w if self.ref == "new" else before, batch)

            def loss(logits: torch.Tensor, labels: torch.Tensor, other: torch.Tensor = other) -> torch.Tensor:
                return functional.cross_entropy(self._mixture(logits, other), labels)

            v = v.add(task.grad(v, batch, loss=loss).add_(v, alpha=decay), alpha=-eta_c)
        return self._kept(v, w), {"w": w}

    def server_init(self, federation: Federation) -> Tensors:
        return {"w": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"w": all["w"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        mean = average([answer.up["w"] for answer in answers], [answer.weight for answer in answers])
        return all if mean is None else {"w": mean}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {"w": mixed(all["w"], answer.up["w"], weight)}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        starts, ends = [answer.down["w"] for answer in answers], [answer.up["w"] for answer in answers]
        return {"w": moved(all["w"], starts, ends, weights)}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> dict[str, torch.Tensor | Predictor]:
        v, w, logits = you["v"], you.get("w", down["w"]), task.network.logits
        return {"personalised": lambda x: self._mixture(logits(v, x), logits(w, x)), "global": down["w"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)

    def _kept(self, v: torch.Tensor, w: torch.Tensor) -> Tensors:
        """What a client keeps of its visit."""
        return {"v": v, "w": w} if self.evaluated_w == "last" else {"v": v}

    def _mixture(self, of_v: torch.Tensor, of_w: torch.Tensor) -> torch.Tensor:
        """The mixture as logits [b, C]; of probabilities it is log q, which log softmax leaves as it is."""
        if self.mix == "logit":
            return self.beta * of_v + (1 - self.beta) * of_w
        log_beta, log_rest = (of_v.new_tensor(share).log() for share in (self.beta, 1 - self.beta))
        log_p_v, log_p_w = functional.log_softmax(of_v, 1), functional.log_softmax(of_w, 1)
        return torch.logaddexp(log_beta + log_p_v, log_rest + log_p_w)
