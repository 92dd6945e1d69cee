"""FedPer: the first layers are everybody's, the last ones each client's own.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers, arXiv 1912.00818, Algorithms 1
and 2.

Objective: min over base, head_1, ..., head_N of sum_i p_i f_i(base, head_i), p_i = n_i / n ("samples") or 1 / N.

A round:
    server      sends base to the clients in S_t
    client i    (base_i, head_i) <- R SGD steps on f_i from (base, head_i), both trained together
                sends base_i, keeps head_i
    server      base <- sum_i p_i base_i / sum_i p_i, i in S_t
Communication per visit: the base down and up, d less what the personal layers hold. State: base at the server; head_i
at the client, from w0. A client that is not drawn keeps its head, and is evaluated with it and the newest base.
Asynchronous form: base is mixed or buffered as FedAvg's model; heads know no staleness.

A layer is a module with parameters of its own, in the order in which the module names them: the last
`personal_layers` are personal (weight and bias of the last linear layer, by default). With 0 it is FedAvg; with all of
them, as by default for a model of one layer, it is Local and nothing travels.
Evaluated: `personalised` is (base, head_i).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import Layout, average


@dataclass(frozen=True)
class FedPer:
    """FedAvg for the base; the head stays at home."""

    personal_layers: int = 1  # K_P, how many layers from the end are the client's own
    weights: Literal["samples", "uniform"] = "samples"  # p_i

    def check(self, federation: Federation) -> list[str]:
        layers = len(federation.layout.layers)
        if not 0 <= self.personal_layers <= layers:
            raise DescriptionError("algorithm.personal_layers", self.personal_layers, f"must be from 0 to {layers}")
        if self.personal_layers == layers:
            return [f"algorithm.personal_layers: all {layers} of the model's layers are personal, nothing is shared"]
        return []

    def client_init(self, client: Client) -> Tensors:
        return self._part("head", client.initial, client.layout)

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w, layout = task.sgd(_joined(down, you)), task.network.layout
        return self._part("head", w, layout), self._part("base", w, layout)

    def server_init(self, federation: Federation) -> Tensors:
        return self._part("base", federation.initial, federation.layout)

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return all

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        p = [answer.weight * (answer.n_samples if self.weights == "samples" else 1) for answer in answers]
        means = {name: average([answer.up[name] for answer in answers], p) for name in all}
        return {name: all[name] if mean is None else mean for name, mean in means.items()}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {name: mixed(base, answer.up[name], weight) for name, base in all.items()}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return {
            name: moved(
                base, [answer.down[name] for answer in answers], [answer.up[name] for answer in answers], weights
            )
            for name, base in all.items()
        }

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": _joined(down, you)}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * self._split(federation.layout) * len(answers)

    def _part(self, which: Literal["base", "head"], w: torch.Tensor, layout: Layout) -> Tensors:
        """A copy of one part of `w` [d], by its name; nothing where it is empty."""
        split = self._split(layout)
        part = w[:split] if which == "base" else w[split:]
        return {which: part.clone()} if len(part) else {}

    def _split(self, layout: Layout) -> int:
        """Where the head begins in a vector [d]."""
        return layout.begin_of_last(self.personal_layers)


def _joined(base: Tensors, head: Tensors) -> torch.Tensor:
    """The whole vector [d]."""
    return torch.cat([*base.values(), *head.values()])
