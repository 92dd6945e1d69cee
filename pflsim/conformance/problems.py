"""A small classification: enough of a federation to run any method on."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from pflsim.federation import Client, Federation
from pflsim.learning.task import Task
from pflsim.learning.training import Training
from pflsim.learning.vector import network
from pflsim.rng import stream


@dataclass
class Problem:
    """N clients, what the server knows of them, and a fresh task for each visit."""

    federation: Federation
    new_task: Callable[[int, int, int], Any]  # (client, visit, round)

    def client(self, i: int) -> Client:
        known = self.federation
        facts = (
            i,
            int(known.sizes[i]),
            known.labels[i],
            known.initial,
            known.layout,
            known.training,
            known.seed,
        )
        return Client(*facts, task=self.new_task(i, -1, -1))


def training_of(**settings: Any) -> Training:
    """Four steps of step size 0.05 on batches of 4."""
    return Training(**{"step_size": 0.05, "batch": 4, "local_steps": 4, **settings})


def classification(
    clients: int = 5,
    seed: int = 1,
    graph: np.ndarray | None = None,
    kind_of_task: type[Task] = Task,
    hidden: int | None = None,
    **training: Any,
) -> Problem:
    """Softmax regression in 3 classes, two to a client, through the real `Task` in float32.

    With `hidden` there is a layer of so many units before it.
    """
    rng = stream(seed, "problem")
    labels = tuple((i % 3, (i + 1) % 3) for i in range(clients))
    sizes = rng.integers(9, 30, clients)
    y = np.concatenate([rng.choice(own, n) for own, n in zip(labels, sizes, strict=True)])
    x = torch.from_numpy((np.eye(3, 4)[y] + 0.5 * rng.normal(size=(len(y), 4))).astype(np.float32))
    layers = [nn.Linear(4, 3)] if hidden is None else [nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3)]
    net, chosen = network(nn.Sequential(nn.Flatten(), *layers), (4,)), training_of(**training)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    nothing = np.array([], dtype=np.int64)
    rows = [np.arange(low, high) for low, high in itertools.pairwise(starts)]
    parts = [SimpleNamespace(train=own[:-3], validation=nothing, test=own[-3:]) for own in rows]
    public = torch.from_numpy(rng.normal(size=(11, 4)).astype(np.float32))
    federation = Federation(
        clients=range(clients),
        sizes=np.array([len(part.train) for part in parts]),
        labels=labels,
        graph=graph,
        initial=net.initial(stream(seed, "init")),
        layout=net.layout,
        training=chosen,
        seed=seed,
        new_initial=net.initial,
        public=len(public),
    )
    return Problem(
        federation,
        lambda i, visit, round: kind_of_task(
            net, x, torch.from_numpy(y), parts[i], chosen, seed, i, visit, round, public=public
        ),
    )
