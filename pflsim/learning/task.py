"""A client's problem during one visit: batches, gradients, local descent, evaluation, and what they cost.

Whatever is random in a visit depends on (seed, purpose, client, visit) and nothing else, so that methods,
placements and schedules that make the same visit draw the same batches.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pflsim.learning.loss import Loss, default_loss, squared_error
from pflsim.learning.training import Training
from pflsim.learning.vector import Network
from pflsim.rng import stream

__all__ = ["Batch", "Drawing", "Evaluation", "Split", "Task", "Training", "Work"]

Split = Literal["train", "validation", "test"]
Drawing = Literal["shuffled", "sgd", "gd"]
"""How a step's samples are drawn: in shuffled passes, anew with replacement, or all of them (the full gradient)."""

Predictor = Callable[[Tensor], Tensor]
"""Samples [b, ...] -> logits [b, C]: a model that is not a vector, such as a mixture of two outputs."""

_EVALUATION_ROWS = 256  # at most, in near-equal pieces; fixed, since a sample's piece can show in the last bit


@dataclass(frozen=True, slots=True)
class Work:
    """Samples passed forward and backward through the network: what simulated computing time is made of."""

    forward_samples: int = 0
    backward_samples: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.forward_samples + other.forward_samples, self.backward_samples + other.backward_samples)


@dataclass(frozen=True, slots=True)
class Batch:
    """A mini-batch: samples `x` [b, ...], labels `y` [b], and which batch of the visit it is.

    Dropout is keyed by (purpose, number): all gradients on one batch drop the same units.
    """

    x: Tensor
    y: Tensor
    purpose: str = "batch"
    number: int = 0

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a model does on a split; `total` is 0 where the client has no samples there."""

    correct: int  # 0 for real-valued targets
    total: int
    loss_sum: float


class Part(Protocol):
    """A client's indices into the pool."""

    @property
    def train(self) -> np.ndarray[Any, Any]: ...
    @property
    def validation(self) -> np.ndarray[Any, Any]: ...
    @property
    def test(self) -> np.ndarray[Any, Any]: ...


@dataclass(slots=True)
class Task:
    """Client `client`'s problem during its visit number `visit`; never changes a vector that it is given."""

    network: Network
    x: Tensor  # [n, ...] the whole pool, shared by all clients
    y: Tensor  # [n] labels, or real-valued targets
    part: Part
    training: Training
    seed: int  # the training seed
    client: int
    visit: int
    round: int
    limit: int | None = None  # the most steps that the time allows
    public: Tensor | None = None  # [p, ...] samples that everybody has, without labels
    spent: Work = field(default_factory=Work)  # what was really done so far; evaluation does not count

    @property
    def n_samples(self) -> int:
        """How many training samples the client has."""
        return len(self.part.train)

    @property
    def step_size(self) -> float:
        """The step size at this round."""
        return self.training.step_size_at(self.round)

    @property
    def steps(self) -> int:
        """The number R of mini-batch steps of this visit; 0 for a client without training samples."""
        return self.within_limit(self.training.steps(self.n_samples))

    def within_limit(self, steps: int) -> int:
        """So many steps, or as many as the time allows: for a method that has a number of its own in a visit."""
        return steps if self.limit is None else min(steps, self.limit)

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of this visit for one purpose; the same again however often it is asked for."""
        return stream(self.seed, purpose, self.client, self.visit)

    def work(self, *, passes: int = 1, forwards: int = 0, drawing: Drawing = "shuffled") -> Work:
        """What a visit costs that has `passes` gradients and `forwards` mere forward passes per local step.

        Exact for batches of `batches(steps)`, under any purpose; add a `Work` for what is done once a visit.
        """
        samples = self.training.samples(self.n_samples, self.steps)
        if drawing != "shuffled":
            samples = self.steps * (min(self.training.batch, self.n_samples) if drawing == "sgd" else self.n_samples)
        return Work(samples * (passes + forwards), samples * passes)

    def batches(self, k: int, purpose: str = "batch", drawing: Drawing = "shuffled") -> Iterator[Batch]:
        """`k` mini-batches from shuffled passes over the training samples; a pass's last batch may be short.

        The same for the same (client, visit, purpose), whatever else was drawn. None for a client without
        samples. Another `drawing` makes no passes.
        """
        for number, rows in enumerate(self._rows(k, purpose, drawing)):
            yield Batch(self.x.index_select(0, rows), self.y.index_select(0, rows), purpose, number)

    def fixed_batches(self) -> list[Batch]:
        """All training samples, in batches that are the same in every visit: for what is kept for each of them.

        Shuffled once. Their last may be short. Costs nothing; see `spend`.
        """
        rows = stream(self.seed, "fixed batches", self.client).permutation(self.part.train)
        pieces = torch.split(torch.from_numpy(rows), self.training.batch) if len(rows) else ()
        return [
            Batch(self.x.index_select(0, piece), self.y.index_select(0, piece), "fixed", number)
            for number, piece in enumerate(pieces)
        ]

    def grad(self, w: Tensor, batch: Batch, loss: Loss | None = None, out: Tensor | None = None) -> Tensor:
        """The gradient [d] of the batch's mean loss at `w`, without weight decay.

        A step that shall have the bits of `sgd` is `w.add(gradient, alpha=-step_size)`.
        """
        self.spend(Work(len(batch), len(batch)))
        rng = None
        if self.network.is_random:
            rng = stream(self.seed, "dropout", batch.purpose, self.client, self.visit, batch.number)
        return self.network.gradient(w, batch.x, batch.y, loss, out, rng)

    def logits(self, w: Tensor, batch: Batch) -> Tensor:
        """The outputs [b, C] at `w`, without dropout."""
        self.spend(Work(len(batch), 0))
        return self.network.logits(w, batch.x)

    def batch_loss(self, w: Tensor, batch: Batch) -> float:
        """The batch's mean loss at `w`, without weight decay and dropout."""
        return float(default_loss(batch.y)(self.logits(w, batch), batch.y))

    def loss(self, w: Tensor, split: Split = "train") -> float:
        """The mean loss f_i(w) over a split, without weight decay; 0 for an empty one."""
        result = self.evaluate(w, split)
        self.spend(Work(result.total, 0))
        return result.loss_sum / max(1, result.total)

    def evaluate(self, model: Tensor | Predictor, split: Split = "test") -> Evaluation:
        """Count right answers and sum the loss of a vector or a predictor over a split; is never charged."""
        indices: np.ndarray[Any, Any] = getattr(self.part, split)
        correct, loss_sum = 0, 0.0
        pieces = math.ceil(len(indices) / _EVALUATION_ROWS)
        for rows in torch.tensor(indices).tensor_split(pieces) if pieces else ():
            x, y = self.x.index_select(0, rows), self.y.index_select(0, rows)
            with torch.no_grad():
                logits = self.network.logits(model, x) if isinstance(model, Tensor) else model(x)
                if torch.is_floating_point(y):
                    loss_sum += squared_error(logits.double(), y).item() * len(y)
                else:
                    loss_sum += functional.cross_entropy(logits.double(), y, reduction="sum").item()
                    correct += int((logits.argmax(1) == y).sum())
        return Evaluation(correct, len(indices), loss_sum)

    def sgd(
        self,
        w: Tensor,
        *,
        steps: int | None = None,
        step_size: float | None = None,
        extra: Callable[[Tensor], Tensor] | None = None,
        loss: Loss | None = None,
        purpose: str = "batch",
    ) -> Tensor:
        """A new vector: `w` after mini-batch steps w <- w - eta (g(w; b) + wd w + extra(w)).

        With momentum m it is v <- m v + (that sum), w <- w - eta v, from v = 0. Without `steps` and
        `step_size`: those of this visit. `extra` must not change its argument.
        """
        steps = self.steps if steps is None else steps
        step_size = self.step_size if step_size is None else step_size
        momentum, weight_decay = self.training.momentum, self.training.weight_decay
        if extra is None and not momentum and not weight_decay and not self.network.is_random:
            samples = self.training.samples(self.n_samples, steps)
            self.spend(Work(samples, samples))
            return self.network.descend(w, self._pairs(steps, purpose), step_size, loss)
        w, g, velocity = w.clone(), torch.empty_like(w), torch.zeros_like(w) if momentum else None
        for batch in self.batches(steps, purpose):
            self.grad(w, batch, loss, out=g)
            if weight_decay:
                g.add_(w, alpha=weight_decay)
            if extra is not None:
                g.add_(extra(w))
            w.add_(g if velocity is None else velocity.mul_(momentum).add_(g), alpha=-step_size)
        return w

    def _pairs(self, k: int, purpose: str) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in self._rows(k, purpose):
            yield self.x.index_select(0, rows), self.y.index_select(0, rows)

    def _rows(self, k: int, purpose: str, drawing: Drawing = "shuffled") -> list[Tensor]:
        """The pool rows of each of `k` batches."""
        train, batch = self.part.train, self.training.batch
        if len(train) == 0:
            return []
        if drawing == "gd":
            return [torch.from_numpy(np.sort(train))] * k
        rng = self.rng(purpose)
        if drawing == "sgd":
            return list(torch.from_numpy(rng.choice(train, (k, min(batch, len(train))))))
        rows: list[Tensor] = []
        for drawn in range(0, k, math.ceil(len(train) / batch)):
            wanted = rng.permutation(train)[: (k - drawn) * batch]
            rows += torch.split(torch.from_numpy(wanted), batch)
        return rows

    def spend(self, work: Work) -> None:
        """Charge what a method computes on samples by itself, without this network."""
        self.spent = self.spent + work
