"""FL+HC: rounds of FedAvg, then one hierarchical clustering of what the clients learn, then FedAvg in each cluster.

Briggs, Fan, Andras: Federated learning with hierarchical clustering of local updates to improve training on non-IID
data, IJCNN 2020, Algorithm 1.

Objective: clusters of clients alike, and for each cluster C min over x_C of sum_{i in C} (n_i / n_C) f_i(x_C).

Rounds 0 ... n1 - 1 are FedAvg's. In round n1 all clients work, drawn or not, and
    server      merges the two nearest of the d_i = u_i - x, again and again, up to the distance `theta`; each of the
                clusters that are left starts from x
From there on, that round included,
    server      sends x_C to each client in S_t, C its cluster
    client i    u_i <- R SGD steps on f_i from x_C
    server      x_C <- sum_i p_i u_i / sum_i p_i over the members of C that answered, p_i = n_i or 1
Communication per visit: 1 vector [d] down, 1 up (u_i). State: x [clusters, d], each client's cluster (-1: none yet),
the mean d_i of each cluster and the x that they are from at the server; nothing at the client.

Readings. The round of the clustering is the first of the clusters too, so that one round fewer is not what the method
costs. A client that does not answer in it is sent the x of then until it does, and joins the cluster whose mean d_i is
nearest. `theta` has no value that fits all models: with "l2" it is a length of d_i, with "cosine" from 0 to 2. The
measure `heights` tells the distances at which clusters merged; theta between two of them gives that many clusters.
theta = 0 is Local after n1 rounds, and a huge one FedAvg throughout. The clustering itself, once, costs no time.
Asynchronous form: x_C is mixed or buffered, as FedAvg's. From round n1 on x stays as it is, until the d_i of half of
the clients are known; then the known are clustered, and the others join later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from pflsim.clustering.geometry import Matrix, absolute_distances, cosines, gram, squared_distances
from pflsim.clustering.labels import NONE, means, members
from pflsim.clustering.merging import merged
from pflsim.clustering.uploads import last_uploads, remember
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class FLHC:
    """FedAvg, and from round n1 on FedAvg in each cluster of clients that learn alike."""

    n1: int = 10  # rounds before the clustering
    metric: Literal["l1", "l2", "cosine"] = "l2"  # the distance of two d_i
    linkage: Literal["ward", "complete", "average", "single"] = "ward"  # the distance of two clusters
    theta: float = 1.0  # up to which distance clusters are merged
    weights: Literal["samples", "uniform"] = "samples"  # p_i

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.n1", self.n1, 0)
        require_number("algorithm.theta", self.theta, 0)
        if self.linkage == "ward" and self.metric != "l2":
            raise DescriptionError(
                "algorithm.linkage", self.linkage, "measures squared lengths: it needs metric = 'l2'"
            )
        return []

    def participants(self, all: Tensors, round: Round, drawn: Sequence[int]) -> Sequence[int]:
        return round.federation.clients if self._waits(all, round) else drawn

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return you, {"u": task.sgd(down["x"])}

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial.repeat(1, 1), "labels": torch.zeros(len(federation.clients), dtype=torch.int64)}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        k = int(all["labels"][client])
        return {"x": all["start"] if k == NONE else all["x"][k]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        if not answers:
            return all
        all = self._grouped(all, answers, round, quorum=0.0)
        x = all["x"].clone()
        for k, own in members(_clusters(all, answers)):
            p = [answers[j].weight * (answers[j].n_samples if self.weights == "samples" else 1) for j in own]
            mean = average([answers[j].up["u"] for j in own], p)
            x[k] = x[k] if mean is None else mean
        return {**all, "x": x}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        all = self._grouped(all, [answer], round, quorum=0.5)
        if self._waits(all, round):
            return all
        x, k = all["x"].clone(), int(all["labels"][answer.client])
        x[k] = mixed(x[k], answer.up["u"], weight)
        return {**all, "x": x}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        all = self._grouped(all, answers, round, quorum=0.5)
        if self._waits(all, round):
            return all
        x = all["x"].clone()
        for k, own in members(_clusters(all, answers)):
            starts, ends = [answers[j].down["x"] for j in own], [answers[j].up["u"] for j in own]
            x[k] = moved(x[k], starts, ends, [weights[j] for j in own])
        return {**all, "x": x}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"cluster": down["x"]}

    def measures(self, all: Tensors, round: Round) -> dict[str, object]:
        heights = {"heights": all["heights"].numpy()} if "heights" in all else {}
        return {"labels": all["labels"].numpy(), "clusters": len(all["x"])} | heights

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)

    def _waits(self, all: Tensors, round: Round) -> bool:
        """Whether the clustering is due, and has not happened."""
        return round.number >= self.n1 and "start" not in all

    def _grouped(self, all: Tensors, answers: Sequence[Answer], round: Round, quorum: float) -> Tensors:
        """The state with clusters, if it is time and the changes of this share of the clients are known."""
        if round.number < self.n1:
            return all
        N, d = len(round.federation.clients), {answer.client: answer.up["u"] - answer.down["x"] for answer in answers}
        if "start" in all:
            return self._joined(all, d)
        all = remember(all, d, N)
        known = dict(last_uploads(all))
        if len(known) < quorum * N:
            return all
        found, heights = merged(_distances(list(known.values()), self.metric), self.linkage, self.theta)
        labels, count = torch.full((N,), NONE), int(found.max()) + 1
        labels[list(known)] = torch.from_numpy(found)
        centres = [mean for mean in means(list(known.values()), found, count) if mean is not None]
        x = {"x": all["x"].repeat(count, 1), "labels": labels, "start": all["x"][0]}
        return x | {"means": torch.stack(centres), "heights": torch.from_numpy(heights)}

    def _joined(self, all: Tensors, d: Mapping[int, torch.Tensor]) -> Tensors:
        """The state in which those who were away are in the cluster whose mean change is nearest to theirs."""
        labels = all["labels"].clone()
        for client, change in d.items():
            if labels[client] == NONE:
                labels[client] = int(_distances([change, *all["means"]], self.metric)[0, 1:].argmin())
        return {**all, "labels": labels}


def _distances(d: Sequence[torch.Tensor], metric: str) -> Matrix:
    """The distances [n, n] of n changes [d]."""
    if metric == "l1":
        return absolute_distances(d)
    return 1.0 - cosines(gram(d)) if metric == "cosine" else np.asarray(np.sqrt(squared_distances(gram(d, d[0]))))


def _clusters(all: Tensors, answers: Sequence[Answer]) -> list[int]:
    """The cluster of each answer's client."""
    return [int(all["labels"][answer.client]) for answer in answers]
