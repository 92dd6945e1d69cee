"""CFL: FedAvg that parts a cluster in two where its clients pull in different directions.

Sattler, Müller, Samek: Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization under Privacy
Constraints, IEEE TNNLS 2021, Algorithms 1 to 3.

Objective: clusters of clients whose f_i have a common minimum, and for each cluster C min over x_C of the mean of f_i.

A round:
    server      sends x_C to each client in S_t, C its cluster; at first all clients are one cluster
    client i    d_i = (R SGD steps on f_i from x_C) - x_C
    server      where ||mean d_i|| < eps1 and max ||d_i|| > eps2 over the members i of C, |C| > 2, and after `warm_up`
                rounds: C becomes two clusters by complete linkage on 1 - cos(d_i, d_j), both from x_C
                x_C <- x_C + mean of d_i over the members of C
Communication per visit: 1 vector [d] down (x_C), 1 up (d_i). State: x [clusters, d], each client's cluster and the
last d_i of everybody [N, d] at the server; nothing at the client. A cluster may be parted again; the half with its
first member keeps the number, and the other one gets the next.

Readings. The mean is unweighted, as in the authors' code, which also adds the d_i after the split. The paper wants
everybody in every round. With fewer, the last known d_i decide about a split, if those of half of the members are known
(none older than `max_age` versions of the server); only what came in this round is added. d_i from before a split are
forgotten, for they belong to another x_C. A member whose d_i was not known joins, when it first answers, the cluster
whose d_i have the mean that is most like its own. eps1 and eps2 are lengths of d_i: they depend on the model, the step
size and the steps; the measures `mean_norm` and `max_norm` tell them for each cluster.

Asynchronous form: x_C is mixed or buffered, as FedAvg's, and the last known d_i are looked at after each arrival.
eps1 = 0 never splits: that is FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pflsim.clustering.geometry import cosines, gram
from pflsim.clustering.labels import members
from pflsim.clustering.merging import halves
from pflsim.clustering.uploads import NEVER, last_uploads, remember
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class CFL:
    """x_C <- x_C + the mean of what its clients learnt; C is split where they disagree."""

    eps1: float = 0.4  # a cluster whose mean change is shorter has come to rest
    eps2: float = 1.6  # a client whose change is longer has not
    warm_up: int = 20  # rounds without a split
    max_age: int | None = None  # versions of the server after which a change is not looked at any more

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.eps1", self.eps1, 0)
        require_number("algorithm.eps2", self.eps2, 0)
        require_number("algorithm.warm_up", self.warm_up, 0)
        if self.max_age is not None:
            require_number("algorithm.max_age", self.max_age, 1)
        return []

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return you, {"d": task.sgd(down["x"]) - down["x"]}

    def server_init(self, federation: Federation) -> Tensors:
        N = len(federation.clients)
        labels, is_placed = torch.zeros(N, dtype=torch.int64), torch.ones(N, dtype=torch.int64)
        return {"x": federation.initial.repeat(1, 1), "labels": labels, "placed": is_placed, "norms": torch.zeros(1, 2)}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"][int(all["labels"][client])]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        if not answers:
            return all
        all = self._parted(all, answers, round)
        x = all["x"].clone()
        for k, own in members(_clusters(all, answers)):
            mean = average([answers[j].up["d"] for j in own], [answers[j].weight for j in own])
            x[k] = x[k] if mean is None else x[k] + mean
        return {**all, "x": x}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        all = self._parted(all, [answer], round)
        x, k = all["x"].clone(), int(all["labels"][answer.client])
        x[k] = mixed(x[k], answer.down["x"] + answer.up["d"], weight)
        return {**all, "x": x}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        all = self._parted(all, answers, round)
        x = all["x"].clone()
        for k, own in members(_clusters(all, answers)):
            starts = [answers[j].down["x"] for j in own]
            ends = [answers[j].down["x"] + answers[j].up["d"] for j in own]
            x[k] = moved(x[k], starts, ends, [weights[j] for j in own])
        return {**all, "x": x}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"cluster": down["x"]}

    def measures(self, all: Tensors, round: Round) -> dict[str, object]:
        mean_norm, max_norm = all["norms"].numpy().T
        told = {"labels": all["labels"].numpy(), "clusters": len(all["x"])}
        return told | {"mean_norm": mean_norm, "max_norm": max_norm}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        N, d = len(federation.clients), len(federation.initial)
        return 2.0 * d * (N**2 + len(answers))  # all inner products, and the means

    def _parted(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        """The state with these changes known, newcomers placed, and each cluster split that disagrees."""
        N = len(round.federation.clients)
        all = _placed(remember(all, {answer.client: answer.up["d"] for answer in answers}, N), answers)
        found = dict(last_uploads(all, self.max_age))
        norms = torch.zeros(len(all["x"]), 2)
        for k in range(len(all["x"])):
            own = torch.nonzero(all["labels"] == k).ravel().tolist()
            known = [i for i in own if i in found]
            if not known:
                continue
            products = gram([found[i] for i in known])
            mean_norm, max_norm = float(np.sqrt(max(0.0, products.mean()))), float(np.sqrt(np.diag(products).max()))
            norms[k] = torch.tensor([mean_norm, max_norm])
            is_known = len(own) > 2 and len(known) > 1 and 2 * len(known) >= len(own)
            disagrees = mean_norm < self.eps1 and max_norm > self.eps2
            if round.number >= self.warm_up and is_known and disagrees:
                all = _split(all, own, known, halves(1.0 - cosines(products), "complete"))
        return {**all, "norms": torch.cat([norms, torch.zeros(len(all["x"]) - len(norms), 2)])}


def _split(all: Tensors, own: Sequence[int], known: Sequence[int], half: np.ndarray) -> Tensors:
    """The state in which the second half of `known` is a cluster of its own, from the same model."""
    labels, placed, when = all["labels"].clone(), all["placed"].clone(), all["when"].clone()
    k = int(labels[own[0]])
    labels[[i for i, of in zip(known, half, strict=True) if of == 1]] = len(all["x"])
    placed[[i for i in own if i not in known]] = 0
    when[list(own)] = NEVER
    return {**all, "x": torch.cat([all["x"], all["x"][k : k + 1]]), "labels": labels, "placed": placed, "when": when}


def _placed(all: Tensors, answers: Sequence[Answer]) -> Tensors:
    """The state in which those who missed a split are in the cluster whose mean change is most like theirs."""
    labels, placed = all["labels"].clone(), all["placed"].clone()
    known = [(int(labels[i]), d) for i, d in last_uploads(all) if placed[i]]
    clusters = members(label for label, _ in known)
    for answer in answers:
        if placed[answer.client] or not clusters:
            continue
        means = [torch.stack([known[j][1] for j in own]).double().mean(0) for _, own in clusters]
        likeness = cosines(gram([answer.up["d"], *means]))[0, 1:]
        labels[answer.client], placed[answer.client] = clusters[int(likeness.argmax())][0], 1
    return {**all, "labels": labels, "placed": placed}


def _clusters(all: Tensors, answers: Sequence[Answer]) -> list[int]:
    """The cluster of each answer's client."""
    return [int(all["labels"][answer.client]) for answer in answers]
