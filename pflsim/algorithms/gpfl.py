"""GPFL: a shared extractor of features, pulled together by global guidance, while each client has a head of its own.

Zhang, Hua, Wang, Song, Xue, Ma, Cao, Guan: GPFL: Simultaneously Learning Global and Personalized Feature Information
for Personalized Federated Learning, ICCV 2023; the form is that of its authors' library.

The model of the run is the base: it is built with `features` = k outputs in the place of the classes, and gives
f = relu(base(x)) [b, k]. Beside it there are an embedding e_c [k] for each of C classes, a conditional valve (CoV), and
a linear head.
    CoV(f, z) = relu((gamma(z) + 1) f + beta(z)),    gamma and beta: linear, relu, layer norm, each [k] -> [k]
On receipt a client takes from the embeddings, for the whole visit,
    g = mean of all e_c        p_i = sum over c of (share of class c in its training data) e_c
Objective of client i, for a batch b:
    CE(head_i(CoV(f, p_i)), y) + CE(cos(CoV(f, g), e), y) + lambda ||CoV(f, g) - e_y||,  the last e_y as received

A round:
    server      sends base, e, CoV to the clients in S_t
    client i    R SGD steps on all of it and on head_i, with weight decay mu on e and CoV
                sends base, e, CoV, keeps head_i
    server      each of them <- sum_i p_i (what i sent) / sum_i p_i, p_i = n_i ("samples") or 1 ("uniform")
Communication per visit: d + C k + 2 (k^2 + 3 k) numbers down, and the same up; head_i (C k + C) is never sent.
State: the shared parts at the server; head_i at the client once it has worked. A client that is not drawn keeps head_i.
Asynchronous form: the shared parts are mixed or buffered as FedAvg's x; head_i stays at its client and knows no
staleness.

Readings. The norm is that of the whole batch as one matrix. Heads start alike everywhere; embeddings start at N(0, 1).
A client is evaluated with the shared parts that it would receive now and its own head (before its first visit, the one
at the start). C is one more than the largest label in the training data. What CoV and embeddings themselves cost to
compute is not charged: the work of a visit is R gradients of the base. Stability: that of SGD; the norm's gradient has
length lambda.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.task import Batch, Predictor, Task, Work
from pflsim.learning.vector import aligned, average
from pflsim.rng import stream


@dataclass(frozen=True)
class GPFL:
    """FedAvg for base, embeddings and valve; each client's head learns what is its own."""

    features: int = 32  # k, the outputs of the base
    lam: float = 0.01  # lambda, how strongly features are pulled towards the embedding of their class
    mu: float = 0.01  # weight decay of embeddings and valve
    weights: Literal["samples", "uniform"] = "samples"  # p_i

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.features", self.features, 1)
        require_number("algorithm.lam", self.lam, 0)
        require_number("algorithm.mu", self.mu, 0)
        for name in ("momentum", "weight_decay"):
            if getattr(federation.training, name):
                reason = "gpfl has steps of its own: set it to 0 (algorithm.mu is a weight decay)"
                raise DescriptionError(f"training.{name}", getattr(federation.training, name), reason)
        if any(isinstance(label, float) for own in federation.labels for label in own):
            raise DescriptionError("algorithm.name", "gpfl", "guides classifiers; these data have no classes")
        return []

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        x, frozen = down["x"], down["e"].clone()
        rest = {name: value for name, value in down.items() if name != "x"} | (you or _first_head(frozen, task))
        g, p = frozen.mean(0), _own_mean(frozen, task)
        for batch in task.batches(task.steps):
            slope, slopes = self._slopes(x, rest, (g, p, frozen), batch, task)
            x = x.add(slope, alpha=-task.step_size)
            for name, value in rest.items():
                decay = 0.0 if name.startswith("head") else self.mu
                rest[name] = value.add(slopes[name].add(value, alpha=decay), alpha=-task.step_size)
        head = {name: value for name, value in rest.items() if name.startswith("head")}
        return head, {"x": x, **{name: value for name, value in rest.items() if name not in head}}

    def _slopes(
        self, x: Tensor, rest: Tensors, guides: tuple[Tensor, Tensor, Tensor], batch: Batch, task: Task
    ) -> tuple[Tensor, Tensors]:
        """The gradient of the objective for the base [d], and for everything else, by name."""
        leaves = {name: value.clone().requires_grad_() for name, value in rest.items()}
        slopes: Tensors = {}

        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            total = self._objective(outputs.relu(), labels, leaves, *guides)
            slopes.update(
                zip(leaves, torch.autograd.grad(total, list(leaves.values()), retain_graph=True), strict=True)
            )
            return total

        return task.grad(x, batch, loss=loss), slopes

    def _objective(self, f: Tensor, y: Tensor, parts: Tensors, g: Tensor, p: Tensor, frozen: Tensor) -> Tensor:
        guided = _valve(f, g, parts)
        cosines = functional.normalize(guided) @ functional.normalize(parts["e"]).T
        own: Tensor = functional.cross_entropy(_head(_valve(f, p, parts), parts), y)
        apart: Tensor = torch.linalg.vector_norm(guided - frozen[y])
        return own + functional.cross_entropy(cosines, y) + self.lam * apart

    def server_init(self, federation: Federation) -> Tensors:
        k = federation.layout.shapes[-1][0]
        C = 1 + max((label for own in federation.labels for label in own), default=0)
        rng, like = federation.rng("gpfl"), federation.initial
        start: Tensors = {"x": like, "e": torch.from_numpy(rng.normal(size=(C, k))).to(like.dtype)}
        for name in ("gamma", "beta"):
            start |= {f"{name}_{part}": value for part, value in _uniform(rng, k, k, like).items()}
            start |= {f"{name}_scale": like.new_ones(k), f"{name}_shift": like.new_zeros(k)}
        return start

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return dict(all)

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        shares = [answer.weight * (answer.n_samples if self.weights == "samples" else 1) for answer in answers]
        means = {name: average([answer.up[name].flatten() for answer in answers], shares) for name in all}
        return {name: all[name] if mean is None else mean.view_as(all[name]) for name, mean in means.items()}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {name: mixed(all[name], answer.up[name], weight) for name in all}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return {
            name: moved(all[name], [a.down[name] for a in answers], [a.up[name] for a in answers], weights)
            for name in all
        }

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> dict[str, Predictor]:
        received = {name: aligned(value) for name, value in down.items()}
        parts, p = received | (you or _first_head(received["e"], task)), _own_mean(received["e"], task)
        base = task.network.logits
        return {"personalised": lambda x: _head(_valve(base(received["x"], x).relu(), p, parts), parts)}


def _valve(f: Tensor, z: Tensor, parts: Tensors) -> Tensor:
    """CoV(f, z) [b, k] for features f [b, k] and a condition z [k]."""
    scale, shift = (_condition(z, name, parts) for name in ("gamma", "beta"))
    return ((scale + 1) * f + shift).relu()


def _condition(z: Tensor, name: str, parts: Tensors) -> Tensor:
    inner = functional.linear(z, parts[f"{name}_weight"], parts[f"{name}_bias"]).relu()
    return functional.layer_norm(inner, inner.shape, parts[f"{name}_scale"], parts[f"{name}_shift"])


def _head(f: Tensor, parts: Tensors) -> Tensor:
    return functional.linear(f, parts["head_weight"], parts["head_bias"])


def _own_mean(embeddings: Tensor, task: Task) -> Tensor:
    """p_i [k]: the embeddings [C, k], weighed by how often the client's training data have the class."""
    labels = task.y[torch.from_numpy(task.part.train)]
    shares = torch.bincount(labels, minlength=len(embeddings)).to(embeddings.dtype) / max(1, len(labels))
    return shares @ embeddings


def _first_head(embeddings: Tensor, task: Task) -> Tensors:
    C, k = embeddings.shape
    return {f"head_{part}": value for part, value in _uniform(stream(task.seed, "head"), k, C, embeddings).items()}


def _uniform(rng: np.random.Generator, inputs: int, outputs: int, like: Tensor) -> Tensors:
    """Weight and bias of a linear layer, uniform within one over the root of the number of inputs."""
    bound = 1 / sqrt(inputs)
    shapes = {"weight": (outputs, inputs), "bias": (outputs,)}
    return {name: torch.from_numpy(rng.uniform(-bound, bound, shape)).to(like.dtype) for name, shape in shapes.items()}
