"""FedMD: clients with models of their own kind learn from what all of them say about public samples.

Li, Wang: FedMD: Heterogenous Federated Learning via Model Distillation, NeurIPS 2019 workshop, Algorithm 1.

Objective of client i: a small f_i(w_i), and logits z(w_i; x) on public samples x that are near the mean of everybody's.

The public samples are `data.public_share` of the pool, without their labels. Clients may differ in their model: with
`model.others` they take the models of a description in turn. No parameter ever travels.

A visit of client i in round t:
    first visit only:  w_i <- pretrain_epochs passes of SGD on f_i                                        transfer
    if a consensus z* on the public samples A of an earlier round came down:
                       w_i <- digest_epochs passes over A of SGD on the mean of |z(w_i; x) - z*(x)|       digest
                       w_i <- R SGD steps on f_i                                                          revisit
    sends z(w_i; x) for the public samples A_t of this round                                              communicate
    server      z* <- mean of the z that came for A_t                                                     aggregate
All clients draw the same A_t, of `align_samples`, from the seed and t; so the number t is all that is sent of it.

Communication per visit: a matrix [align_samples, C] of logits down (none before there is a consensus), the same up,
and two numbers. State: z* and the round it is of at the server; w_i [d_i] at the client, from the start of its own
model, and never sent. A client that is not drawn keeps w_i; when it works again, it digests the newest consensus.
Asynchronous form: what comes for the newest A is averaged as it comes; what comes for an older one is ignored, as
nobody will be asked to digest that. No alpha, and age does not matter otherwise.

Readings. The paper's loop (communicate, aggregate, distribute, digest, revisit) is cut before "distribute", so that it
is one message down and one up; the consensus of the last round is digested by nobody. The authors' code trains with
Adam, and first until early stopping, 25 epochs at most; here all of it is SGD with the step size of the run, so that
methods are compared alike, and the number of epochs is fixed. A client that crashed and forgot its w_i is not trained
first again. Stability: a digest step moves along a gradient that is bounded, and ends in a wobble of size eta_digest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, require_number
from pflsim.learning.task import Batch, Task, Work
from pflsim.learning.vector import average
from pflsim.rng import stream


@dataclass(frozen=True)
class FedMD:
    """w_i follows its own data, and what all say about A."""

    align_samples: int = 1000  # how many public samples a round has; where there are fewer, all of them
    pretrain_epochs: int = 25  # passes over the own data in a client's first visit
    digest_epochs: int = 1  # passes over A in which the consensus is matched
    eta_digest: float | None = None  # step size of these; None: that of the training, at every round

    mixes: ClassVar[bool] = False
    needs_public: ClassVar[bool] = True
    any_model: ClassVar[bool] = True

    def check(self, federation: Federation) -> list[str]:
        if not federation.public:
            reason = "fedmd needs public samples, such as public_share = 0.1"
            raise DescriptionError("data.public_share", 0.0, reason)
        require_number("algorithm.align_samples", self.align_samples, 1)
        for name in ("pretrain_epochs", "digest_epochs"):
            require_number(f"algorithm.{name}", getattr(self, name), 0)
        if self.eta_digest is not None:
            require_number("algorithm.eta_digest", self.eta_digest, 0, above=True)
        return []

    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        has_consensus, said = "consensus" in down, len(self._rows(task, 0))
        trainings = self._pretraining(task), task.steps if has_consensus else 0
        private = sum(task.training.samples(task.n_samples, steps) for steps in trainings)
        digested = self.digest_epochs * said if has_consensus else 0
        return Work(private + digested + said, private + digested)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w = you["w"]
        if first := self._pretraining(task):
            w = task.sgd(w, steps=first, purpose="pretraining")
        if "consensus" in down:
            w = task.sgd(self._digested(w, down, task))
        said = [task.logits(w, batch) for batch in self._batches(task, self._rows(task, int(down["align"])))]
        return {"w": w}, {"logits": torch.cat(said)}

    def server_init(self, federation: Federation) -> Tensors:
        return {"of": torch.tensor([-1]), "answers": torch.tensor([0])}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        down = {"align": torch.tensor([round.number])}
        return down | {name: all[name] for name in ("of", "consensus") if "consensus" in all}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        newest = max([int(all["of"]), *(int(answer.down["align"]) for answer in answers)])
        said = [answer.up["logits"].flatten() for answer in answers if int(answer.down["align"]) == newest]
        if not said:
            return all
        counts = [1] * len(said)
        if newest == int(all["of"]):
            said, counts = [all["consensus"].flatten(), *said], [int(all["answers"]), *counts]
        mean = average(said, counts)
        assert mean is not None  # each counts 1 at least
        consensus = mean.view_as(answers[0].up["logits"])
        return {"of": torch.tensor([newest]), "answers": torch.tensor([sum(counts)]), "consensus": consensus}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return self.server_step(all, [answer], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self.server_step(all, answers, round)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": you["w"]}

    def _pretraining(self, task: Task) -> int:
        """The steps of a client's first visit before anything else; 0 in all others."""
        return self.pretrain_epochs * math.ceil(task.n_samples / task.training.batch) if task.visit == 0 else 0

    def _digested(self, w: torch.Tensor, down: Tensors, task: Task) -> torch.Tensor:
        eta = task.step_size if self.eta_digest is None else self.eta_digest
        rows, consensus = self._rows(task, int(down["of"])), down["consensus"]
        for number in range(self.digest_epochs):
            order = torch.from_numpy(
                stream(task.seed, "digest", task.client, task.visit, number).permutation(len(rows))
            )
            for batch in self._batches(task, rows[order], consensus[order]):
                w = w.add(task.grad(w, batch, loss=functional.l1_loss), alpha=-eta)
        return w

    def _rows(self, task: Task, number: int) -> torch.Tensor:
        """A of round `number`: the same public samples at every client."""
        assert task.public is not None  # `check` refused it
        drawn = stream(task.seed, "align", number).permutation(len(task.public))
        return torch.from_numpy(drawn[: self.align_samples])

    def _batches(self, task: Task, rows: torch.Tensor, targets: torch.Tensor | None = None) -> list[Batch]:
        """Public samples, and what is to be said of them, in batches of nearly the same size."""
        assert task.public is not None
        pieces = math.ceil(len(rows) / task.training.batch)
        x = task.public.index_select(0, rows)
        y = x.new_zeros(len(rows)) if targets is None else targets
        cut = zip(x.tensor_split(pieces), y.tensor_split(pieces), strict=True)
        return [Batch(*pair, "public", number) for number, pair in enumerate(cut)]
