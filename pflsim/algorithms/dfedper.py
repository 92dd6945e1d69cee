"""FedPer without a server: peers average their first layers with their neighbours', and keep the last to themselves.

An extension of ours: FedPer (Arivazhagan, Aggarwal, Singh, Choudhary, arXiv 1912.00818) with D-PSGD (Lian et al.,
2017, `pflsim.algorithms.dpsgd`) in the place of its FedAvg. Neither paper has it.

Objective: min over base, head_1, ..., head_N of (1 / N) sum_k f_k(base, head_k)

A round of peer k:
    (base'_k, head_k) <- R SGD steps on f_k from (base_k, head_k), both trained together
    sends base'_k to its neighbours, and has base'_l of each
    base_k <- W_kk base'_k + sum_l W_kl base'_l          W as in D-PSGD
On the full graph every base_k is the mean of all, and this is FedPer with S_t = all and uniform weights. With old
models of neighbours, in pairs and with random neighbours base_k is treated as D-PSGD's model is.
Communication per round: the base to each neighbour, and from each; d less what the personal layers hold. State: w_k =
(base_k, head_k) [d]; head_k is never sent.

A layer is a module with parameters of its own, in the order in which the module names them: the last
`personal_layers` are personal (weight and bias of the last linear layer, by default). With 0 it is D-PSGD; with all of
them, as by default for a model of one layer, it is Local and nothing travels but the headers.
Stability: that of SGD; the mixing is a convex combination, whatever the graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Client, Federation, Neighbour, Round, Tensors, pulled
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import Layout


@dataclass(frozen=True)
class DFedPer:
    """D-PSGD for the base; the head stays at home."""

    personal_layers: int = 1  # how many layers from the end are the peer's own

    def check(self, federation: Federation) -> list[str]:
        if federation.topology is None:
            raise DescriptionError("topology", None, "dfedper needs a graph between the peers, such as ring or regular")
        layers = len(federation.layout.layers)
        if not 0 <= self.personal_layers <= layers:
            raise DescriptionError("algorithm.personal_layers", self.personal_layers, f"must be from 0 to {layers}")
        if self.personal_layers == layers:
            return [f"algorithm.personal_layers: all {layers} of the model's layers are personal, nothing is shared"]
        return []

    def client_init(self, client: Client) -> Tensors:
        split = self._split(client.layout)
        return {"base": client.initial[:split].clone(), "head": client.initial[split:].clone()}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w, split = task.sgd(_joined(you)), len(you["base"])
        return {"base": w[:split].clone(), "head": w[split:].clone()}, {}

    def peer_shows(self, you: Tensors) -> Tensors:
        return {"base": you["base"]} if len(you["base"]) else {}

    def peer_step(self, you: Tensors, neighbours: Sequence[Neighbour], round: Round) -> Tensors:
        if not len(you["base"]):
            return you
        others = [neighbour.shown["base"] for neighbour in neighbours]
        return {**you, "base": pulled(you["base"], others, [neighbour.share for neighbour in neighbours])}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": _joined(you)}

    def _split(self, layout: Layout) -> int:
        """Where the head begins in a vector [d]."""
        return layout.begin_of_last(self.personal_layers)


def _joined(you: Tensors) -> torch.Tensor:
    """The whole vector [d]."""
    return torch.cat([you["base"], you["head"]])
