"""Peers whose models are known numbers, in float64: what the exchanges make of them can be told exactly.

`Wandering` starts every peer somewhere else, and its work moves the model by a known step instead of learning.
`Watch` sees how peers start, work and end, in a run with the sequential driver.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import nodes.gossip
import nodes.peer
from nodes.sequential import FactList, run_sequentially
from pflsim.algorithms.dfedu import DFedU
from pflsim.algorithms.dpsgd import DPSGD
from pflsim.federation import Client, Tensors
from pflsim.learning.task import Task
from pflsim.rng import stream
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description

DIMENSION = 5
SLOW = 1e6
"""FLOPs a second, so that the work of the quick takes about 10 ms, that of the slow one 100 ms, and a message 2 ms."""


def somewhere(*place: object) -> torch.Tensor:
    """A random point that `place` names, [DIMENSION] in float64."""
    return torch.from_numpy(stream(7, *place).normal(size=DIMENSION))


class Wandering:
    """What both methods of these tests do instead of learning; `restless` = False: nothing (step size 0)."""

    restless = True

    def client_init(self, client: Client) -> Tensors:
        return {"w": somewhere("start", client.id)}

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        task.sgd(torch.zeros(task.network.layout.dimension))  # the work that was declared
        return {"w": you["w"] + step_of(task.client, task.visit)} if self.restless else you, {}


def step_of(client: int, visit: int) -> torch.Tensor:
    return 0.1 * somewhere("step", client, visit)


@dataclass(frozen=True)
class WanderingGossip(Wandering, DPSGD):
    """D-PSGD of wanderers."""

    restless: bool = True


@dataclass(frozen=True)
class WanderingDFedU(Wandering, DFedU):
    """dFedU of wanderers."""

    restless: bool = True


@dataclass
class Watch:
    """What there was to be seen."""

    peers: int
    ends: list[torch.Tensor]
    visits: dict[int, int]
    exchanged_at_work: int = 0
    facts: FactList | None = None

    @property
    def mean(self) -> torch.Tensor:
        """That of all models at the end."""
        return torch.stack(self.ends).mean(0)

    @property
    def expected_mean(self) -> torch.Tensor:
        """That of all starts, and of all that the work has added."""
        starts = sum(somewhere("start", client) for client in range(self.peers))
        steps = sum(step_of(client, visit) for client, visits in self.visits.items() for visit in range(visits))
        return (starts + steps) / self.peers

    @property
    def spread(self) -> float:
        """How far the models are from their mean."""
        return float((torch.stack(self.ends) - self.mean).norm())


def watched(monkeypatch: pytest.MonkeyPatch, method: str, *, peers: int = 6, **settings: Any) -> Watch:
    """Run wanderers, `method` being "gossip" or "dfedu", without evaluation; `algorithm__x` sets the method's own."""
    name = {"gossip": "tests.gossiping:WanderingGossip", "dfedu": "tests.gossiping:WanderingDFedU"}[method]
    given = {"run__clients": peers, "run__eval_every": 0, "devices__flops_per_second": SLOW, **settings}
    tables = description(algorithm__name=name, **given)
    return run_watched(monkeypatch, tables)


def run_watched(monkeypatch: pytest.MonkeyPatch, tables: Mapping[str, Any]) -> Watch:
    """Run a description whose method's state is {"w": ...}."""
    watch = Watch(tables["run"]["clients"], [], {})
    digest_of, added, finish = nodes.peer.digest_of, nodes.gossip.added, nodes.peer._finish

    def kept(you: Tensors) -> bytes:
        watch.ends.append(you["w"].double())
        return digest_of(you)

    def counted(now: Tensors, before: Tensors, after: Tensors) -> Tensors:
        watch.exchanged_at_work += now is not before
        return added(now, before, after)

    def finished(port: Any, study: Any, number: int, state: Any, stopped: str) -> None:
        watch.visits[number] = state.visits
        finish(port, study, number, state, stopped)

    with monkeypatch.context() as patch:
        patch.setattr(nodes.peer, "digest_of", kept)
        patch.setattr(nodes.gossip, "added", counted)
        patch.setattr(nodes.peer, "_finish", finished)
        watch.facts = run_sequentially(Study(validate(tables), b"tried"))
    assert len(watch.ends) == watch.peers
    return watch
