"""What the server keeps, and how it hands out work and takes what comes back; the same for every schedule."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from pflsim.federation import Answer, Round, Tensors
from pflsim.messages.port import Port
from pflsim.messages.wire import WORK, Message
from pflsim.study import Study
from pflsim.timing.clock import host_seconds


@dataclass(frozen=True)
class Outstanding:
    """Work that a client was given and has not answered."""

    work_id: int
    round: int
    version: int
    down: Tensors


@dataclass
class ServerState:
    """All that the server keeps between two messages."""

    all: Tensors
    round: int = 0
    version: int = 0
    work_id: int = 0
    outstanding: dict[int, Outstanding] = field(default_factory=dict)
    """By client: who is busy, and with what."""
    losses: dict[int, float] = field(default_factory=dict)
    """By client: the training loss that it reported last, where the sampling asks for it."""
    restart: set[int] = field(default_factory=set)
    """Clients whose upload was not finite; they begin anew when they work next."""


def hand_out(port: Port, study: Study, state: ServerState, client: int, this: Round) -> None:
    """Give `client` work of this round; it is busy until it answers."""
    state.work_id += 1
    down = study.method.server_down(state.all, client, this)
    state.outstanding[client] = Outstanding(state.work_id, this.number, state.version, down)
    port.send(
        study.names[client],
        WORK,
        down,
        {"restart": True} if client in state.restart else None,
        round=this.number + 1,
        version=state.version,
        work_id=state.work_id,
    )
    state.restart.discard(client)


def take_in(port: Port, study: Study, state: ServerState, result: Message) -> Answer | None:
    """What a client answered; None if it is not finite, and then it is rejected."""
    client = study.number_of[result.sender]
    work = state.outstanding.pop(client)
    if not _finite(result.tensors):
        state.restart.add(client)
        tell(port, result.sender, "rejected", f"round {result.round}: the upload of {result.sender} is not finite")
        return None
    if "loss" in result.facts:
        state.losses[client] = result.facts["loss"]
    return Answer(client, result.tensors, work.down, state.version - work.version, result.samples)


def tell(port: Port, actor: str, what: str, detail: str) -> None:
    """Record an event."""
    port.recorder.tell("events", actor, what, detail, port.now_ns, host_seconds())


def tell_round(
    port: Port,
    study: Study,
    state: ServerState,
    this: Round,
    ids: Sequence[int],
    answers: Sequence[Answer],
    rejected: int,
    began_ns: int,
    began_s: float,
) -> None:
    """Record a round that has ended, and what the method measures after it."""
    counts = (json.dumps(list(ids)), len(answers), rejected)
    port.recorder.tell("rounds", state.round, began_ns, port.now_ns, host_seconds() - began_s, *counts)
    for name, value in study.measures(state.all, this).items():
        port.recorder.tell("measures", state.round, port.name, name, value)


def _finite(tensors: Tensors) -> bool:
    """Whether every number is one: a sum is finite only then, unless it overflows."""
    return all(
        bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())
        for tensor in tensors.values()
        if tensor.is_floating_point()
    )
