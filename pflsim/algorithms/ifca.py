"""IFCA: K models, of which each client trains the one that fits its data best.

Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning, NeurIPS 2020, Algorithm 1.

Objective: min over x_1 ... x_K of sum_i min_k f_i(x_k).

A round:
    server      sends x_1 ... x_K to the clients in S_t
    client i    k_i = argmin_k f_i(x_k), the first of equals                                                  line 6
                u_i <- R SGD steps on f_i from x_{k_i}       average = "model"                        line 7, option II
                g_i  = the gradient of one batch at x_{k_i}  average = "gradient"                     line 7, option I
    server      x_k <- mean of u_i over those with k_i = k;  without any it stays                    line 9, option II
                x_k <- x_k - (eta / |S_t|) sum of g_i over those with k_i = k                         line 9, option I
Communication per visit: K vectors [d] down, 1 up and k_i. Compute per visit: R gradients and K passes forward over the
client's training data (`select_on = "batch"`: over one batch of it). State: x [K, d] and the last k_i of each client
(-1: never worked) at the server; nothing at the client.

Start (`init`): "random" has K independent draws of the model's start, x_1 being w0, so that K = 1 is FedAvg;
"perturbed" adds noise of size `sigma` times that of w0 to it; "k-means" trains from w0 for one round, whose answers' K
centres are the models, where the paper only asks for a good start. In that round w0 alone is sent.

Readings. The paper's k_i is by the training loss, also for a client that is evaluated; its code chooses again on the
data that are evaluated (`choose_on = "test"`), which looks at the labels that shall be predicted.
Asynchronous form: x_{k_i} alone is mixed or buffered, as FedAvg's. An answer's age counts all arrivals, those for other
models too. Gradients are for rounds only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from pflsim.clustering.kmeans import kmeans
from pflsim.clustering.labels import NONE, means, members, nearest
from pflsim.clustering.uploads import last_uploads, remember
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.loss import default_loss
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class IFCA:
    """x_k <- the mean of what those made of it whom it fits best."""

    K: int = 4  # models
    init: Literal["random", "perturbed", "k-means"] = "random"
    sigma: float = 1.0  # of "perturbed": the size of the noise, relative to w0
    average: Literal["model", "gradient"] = "model"  # what a client sends
    select_on: Literal["train", "batch"] = "train"  # the data on which it chooses
    choose_on: Literal["train", "test"] = "train"  # the data on which it chooses the model that is evaluated

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.K", self.K, 1)
        require_number("algorithm.sigma", self.sigma, 0, above=True)
        if self.average == "gradient" and federation.training.momentum:
            reason = "sends one gradient, which knows no momentum; set training.momentum = 0"
            raise DescriptionError("algorithm.average", self.average, reason)
        starts = self._starts(federation)
        if self.init != "k-means" and self.K > 1 and bool((starts[1:] == starts[0]).all()):
            reason = "starts all models alike, and nobody would ever choose another than the first; take k-means"
            raise DescriptionError("algorithm.init", self.init, reason)
        return []

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        trained = task.work()
        if self.average == "gradient":
            samples = task.training.samples(task.n_samples, 1)
            trained = Work(samples, samples)
        looked = task.n_samples if self.select_on == "train" else task.training.samples(task.n_samples, 1)
        return trained + Work(len(down["x"]) * looked, 0)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        k = int(np.argmin([self._loss(x, task) for x in down["x"]]))
        x = down["x"][k]
        if self.average == "model":
            return you, {"u": task.sgd(x), "k": torch.tensor([k])}
        g = torch.zeros_like(x)
        for batch in task.batches(1):  # none without samples
            g = task.grad(x, batch).add_(x, alpha=task.training.weight_decay)
        return you, {"g": g, "k": torch.tensor([k])}

    def server_init(self, federation: Federation) -> Tensors:
        labels = torch.full((len(federation.clients),), NONE)
        return {"x": self._starts(federation), "labels": labels}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        if len(all["x"]) < self.K:
            return self._begun(all, answers, round)
        x, labels = all["x"].clone(), self._labels(all, answers, round)
        for k, own in members(labels):
            weights = [answers[j].weight for j in own]
            if self.average == "model":
                mean = average([answers[j].up["u"] for j in own], weights)
            else:
                slope = average([answers[j].up["g"] for j in own], weights)
                mean = None if slope is None else x[k] - round.step_size * sum(weights) / len(answers) * slope
            x[k] = x[k] if mean is None else mean
        return _after(all, x, answers, labels)

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        if len(all["x"]) < self.K:  # wait for the first answers of half of the clients
            N = len(round.federation.clients)
            all = remember(all, {answer.client: self._trained(answer, round)}, N)
            first = [u for _, u in last_uploads(all)]
            return all if 2 * len(first) < N else self._clustered(all, first, round)
        x, (k,) = all["x"].clone(), self._labels(all, [answer], round)
        x[k] = mixed(x[k], self._trained(answer, round), weight)
        return _after(all, x, [answer], [k])

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        if len(all["x"]) < self.K:
            return self._begun(all, answers, round)
        x, labels = all["x"].clone(), self._labels(all, answers, round)
        for k, own in members(labels):
            share = 1.0 if self.average == "model" else len(own) / len(answers)
            starts, ends = [_start(answers[j]) for j in own], [self._trained(answers[j], round) for j in own]
            x[k] = moved(x[k], starts, ends, [share * weights[j] for j in own])
        return _after(all, x, answers, labels)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        losses = [task.evaluate(x, self.choose_on).loss_sum for x in down["x"]]
        return {"cluster": down["x"][int(np.argmin(losses))]}

    def measures(self, all: Tensors, round: Round) -> dict[str, object]:
        labels = all["labels"].numpy()
        return {"labels": labels, "clusters": len(set(labels.tolist()) - {NONE})}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)

    def _starts(self, federation: Federation) -> torch.Tensor:
        """The first models, [K, d], or [1, d] where they will come from the first answers."""
        w0, x = federation.initial, [federation.initial]
        for k in range(1, self.K if self.init != "k-means" else 1):
            rng = federation.rng(f"model {k}")
            if self.init == "random":
                x.append(federation.new_initial(rng))
            else:
                noise = torch.from_numpy(rng.normal(size=len(w0))).to(w0.dtype)
                x.append(w0 + self.sigma * w0.norm() / len(w0) ** 0.5 * noise)
        return torch.stack(x)

    def _begun(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        """The state after the round whose answers' centres are the first models."""
        return self._clustered(all, [self._trained(answer, round) for answer in answers], round) if answers else all

    def _clustered(self, all: Tensors, first: Sequence[torch.Tensor], round: Round) -> Tensors:
        found = means(first, kmeans(first, self.K, round.rng("k-means")).labels, self.K)
        return {"x": torch.stack([all["x"][0] if mean is None else mean for mean in found]), "labels": all["labels"]}

    def _loss(self, x: torch.Tensor, task: Task) -> float:
        """f_i(x), or that on one batch."""
        if self.select_on == "train":
            return task.loss(x)
        return sum(float(default_loss(b.y)(task.logits(x, b), b.y)) for b in task.batches(1, "select"))

    def _trained(self, answer: Answer, round: Round) -> torch.Tensor:
        return answer.up["u"] if self.average == "model" else _start(answer) - round.step_size * answer.up["g"]

    def _labels(self, all: Tensors, answers: Sequence[Answer], round: Round) -> list[int]:
        """Which model each answer is for: the chosen one, or the nearest where there was nothing to choose from yet."""
        return [
            int(answer.up["k"])
            if len(answer.down["x"]) == len(all["x"])
            else nearest(self._trained(answer, round), list(all["x"]))
            for answer in answers
        ]


def _start(answer: Answer) -> torch.Tensor:
    """The model that a client chose and trained."""
    return answer.down["x"][int(answer.up["k"])]


def _after(all: Tensors, x: torch.Tensor, answers: Sequence[Answer], chosen: Sequence[int]) -> Tensors:
    """The state with these models, and what the clients chose."""
    labels = all["labels"].clone()
    for answer, k in zip(answers, chosen, strict=True):
        labels[answer.client] = k
    return {"x": x, "labels": labels}
