"""A method to which something happens: FedAvg, until one client's work in one round goes wrong in a chosen way."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from greenlet import GreenletExit

from pflsim.algorithms.dpsgd import DPSGD
from pflsim.algorithms.fedavg import FedAvg
from pflsim.federation import Answer, Client, Federation, Round, Tensors
from pflsim.learning.task import Task, Work

FOREVER_S = 3600
How = Literal[
    "nothing",
    "client raises",
    "exits",
    "exits without an error",
    "ends its greenlet",
    "ends its program",
    "server exits without an error",
    "uploads nan",
    "uploads the largest number",
    "is stuck",
    "works more",
    "is stuck joining",
    "is stuck evaluating",
    "server raises",
]


@dataclass(frozen=True)
class Accident(FedAvg):
    """Something happens to `client` in `round` (from 0); every step takes `pause_s` longer than it must.

    A client counts its visits since it was last set up, and tells the server, which measures them.
    """

    how: How = "nothing"
    client: int = 2
    round: int = 1
    pause_s: float = 0.0

    def client_init(self, client: Client) -> Tensors:
        if self.how == "is stuck joining" and client.id == self.client:
            time.sleep(FOREVER_S)
        return {"visits": torch.zeros(1)}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        time.sleep(self.pause_s)
        _, up = super().client_step(you, down, task)
        if task.client == self.client and task.round == self.round:
            up = self._happen(up, task)
        visits = {"visits": you["visits"] + 1}
        return visits, up | visits

    def server_init(self, federation: Federation) -> Tensors:
        return super().server_init(federation) | {"visits": torch.zeros(len(federation.clients))}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        if self.how == "server raises" and round.number == self.round:
            raise ZeroDivisionError("the server's accident")
        if self.how == "server exits without an error" and round.number == self.round:
            os._exit(0)
        visits = all["visits"].clone()
        for answer in answers:
            visits[answer.client] = answer.up["visits"]
        return super().server_step(all, answers, round) | {"visits": visits}

    def measures(self, all: Tensors, round: Round) -> dict[str, Any]:
        return {"visits": all["visits"], "largest": all["x"].abs().max()}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> dict[str, torch.Tensor]:
        if self.how == "is stuck evaluating" and task.client == self.client and task.round == self.round:
            time.sleep(FOREVER_S)
        return {"global": down["x"]}

    def _happen(self, up: Tensors, task: Task) -> Tensors:
        if self.how == "client raises":
            raise ZeroDivisionError("the client's accident")
        if self.how.startswith("exits"):
            os._exit(3 if self.how == "exits" else 0)
        if self.how == "ends its greenlet":
            raise GreenletExit
        if self.how == "ends its program":
            raise SystemExit(0)
        if self.how == "is stuck":
            time.sleep(FOREVER_S)
        if self.how == "works more":
            task.sgd(up["u"], steps=1)
        spoilt = {"uploads nan": torch.nan, "uploads the largest number": torch.finfo(torch.float32).max}
        return {"u": torch.full_like(up["u"], spoilt[self.how])} if self.how in spoilt else up


@dataclass(frozen=True)
class Slow(FedAvg):
    """FedAvg whose work really takes a while longer, in every schedule."""

    pause_s: float = 0.02

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        time.sleep(self.pause_s)
        return super().client_step(you, down, task)


@dataclass(frozen=True)
class SlowPeer(DPSGD):
    """The same without a server."""

    pause_s: float = 0.02

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        time.sleep(self.pause_s)
        return super().client_step(you, down, task)


def kill(pid: int) -> None:
    """What the kernel does when memory runs out."""
    os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class PeerAccident(DPSGD):
    """D-PSGD, until c002 raises in its second round."""

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        if task.client == 2 and task.round == 1:
            raise ValueError("the peer's accident")
        return super().client_step(you, down, task)


@dataclass(frozen=True)
class KilledWriting(FedAvg):
    """Client 2 is killed when it has written a checkpoint and not yet given it its name, once: then `mark` exists."""

    mark: str = ""

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        if task.client == 2 and task.round == 5 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        return super().client_step(you, down, task)
