"""What the server keeps, and how it hands out work and takes what comes back; the same for every schedule."""

import json
from collections import Counter
from dataclasses import dataclass, field

from nodes.coding import Told, has_come_down, sent_down, take_up
from pflsim.errors import RunFailed
from pflsim.federation import Answer, Round, Tensors
from pflsim.messages.port import Port
from pflsim.messages.wire import GONE, LOSS, LOST, WORK, Message
from pflsim.record.classes import AGE
from pflsim.schedules.sync import Sync
from pflsim.study import Study
from pflsim.timing.clock import host_seconds
from pflsim.timing.presence import Moment


@dataclass(frozen=True)
class Outstanding:
    """Work that a client was given and has not answered."""

    work_id: int
    round: int
    version: int
    down: Tensors
    given_ns: int


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
    """By client: the training loss that it reported last, where the sampling asks for it; with its upload or alone."""
    answered: int | None = None
    """Who answered last, whatever it was."""
    in_vain: Counter[str] = field(default_factory=Counter)
    """By what became of it: work that brought no answer, since the last one that was taken."""
    rejected: set[int] = field(default_factory=set)
    """Clients whose last upload was not finite: when they work next, it is from their state before that."""
    accuracy: float | None = None
    """Over the samples of all clients, when they were evaluated last."""
    wall_s: float = 0.0
    """Host seconds from the beginning of the run to its last checkpoint."""
    told: Told = field(default_factory=Told)
    """What the codecs of what goes down remember."""


@dataclass
class Tally:
    """What has become of the work of one round."""

    began_ns: int
    given: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    rejected: int = 0
    gone: int = 0


def remaining(port: Port, study: Study) -> list[int]:
    """The clients that have not left the run, ascending. Raises RunFailed if nobody has stayed."""
    left = [client for client, name in enumerate(study.names) if name not in port.lost]
    if not left:
        raise RunFailed(port.name, f"nobody is left: all {len(study.names)} clients are lost")
    return left


def reachable(port: Port, study: Study, state: ServerState) -> list[int]:
    """The clients that are there and have nothing to do, ascending."""
    now = Moment(port.now_ns, state.round)
    return [
        client
        for client in remaining(port, study)
        if client not in state.outstanding and study.presence.can_be_asked(study.names[client], now)
    ]


def hand_out(
    port: Port,
    study: Study,
    state: ServerState,
    client: int,
    this: Round,
    until_ns: int | None = None,
    kind: str = WORK,
) -> None:
    """Give `client` work of this round (or PROBE it), which it shall end by `until_ns`; it is busy until it answers."""
    state.work_id += 1
    down = study.method.server_down(state.all, client, this)
    sent = sent_down(study, state.told, client, down, (state.round, state.version), state.work_id)
    state.outstanding[client] = Outstanding(state.work_id, this.number, state.version, sent.seen, port.now_ns)
    facts = {"rejected": True} if client in state.rejected else {}
    port.send(
        study.names[client],
        kind,
        sent.tensors,
        facts if until_ns is None else facts | {"until_ns": until_ns},
        round=this.number + 1,
        version=state.version,
        work_id=state.work_id,
        coded=sent.coded,
    )
    state.rejected.discard(client)


def take_in(port: Port, study: Study, state: ServerState, message: Message, tally: Tally) -> Answer | None:
    """What a client answered; None if it was away and its work is lost, if its upload is not finite, and for a LOSS.

    Who has left the run answers nothing, either.
    """
    client = study.number_of[message.sender]
    work = state.outstanding.get(client)
    if message.kind == LOST:
        state.outstanding.pop(client, None)
        return None
    if work is None or work.work_id != message.work_id:
        tell(port, message.sender, "late", f"an answer of round {message.round} came after its work was cancelled")
        return None
    del state.outstanding[client]
    state.answered = client
    has_come_down(study, state.told, client, work.work_id, work.down)
    if message.kind == LOSS:
        _note_loss(port, state, client, message)
        return None
    if message.kind == GONE:
        tally.gone += 1
        state.in_vain["gone"] += 1
        tell(port, message.sender, "gone", f"round {message.round}: {message.sender} was away, and its work is lost")
        return None
    if why := _unfit(port, message, work):
        tally.rejected += 1
        state.in_vain["rejected"] += 1
        state.rejected.add(client)
        tell(port, message.sender, "rejected", f"round {message.round}: the upload of {message.sender} {why}")
        return None
    if "loss" in message.facts:
        state.losses[client] = message.facts["loss"]
    age = state.version - work.version
    if not isinstance(study.schedule, Sync):  # in whole rounds no answer is ever old
        port.recorder.tell("measures", state.round + 1, message.sender, AGE, age)
    return Answer(client, message.tensors, work.down, age, message.samples)


def _note_loss(port: Port, state: ServerState, client: int, message: Message) -> None:
    if "loss" in message.facts:
        state.losses[client] = message.facts["loss"]
    else:
        tell(port, message.sender, "away", f"round {message.round}: {message.sender} was away, and tells no loss")


def cancel(port: Port, study: Study, state: ServerState, client: int) -> None:
    """Wait no longer for the work of `client`, and let it stop."""
    work = state.outstanding.pop(client)
    state.in_vain["cancelled"] += 1
    port.cancel(study.names[client], work.work_id)
    tell(port, study.names[client], "cancelled", f"its work of round {work.round + 1} is cancelled")


def tell(port: Port, actor: str, what: str, detail: str) -> None:
    """Record an event."""
    port.recorder.tell("events", actor, what, detail, port.now_ns, host_seconds())


def fold(port: Port, study: Study, state: ServerState, this: Round, answers: list[Answer]) -> None:
    """Fold the answers of a round in, in the order of the clients' ids; without any, nothing changes."""
    answers.sort(key=lambda answer: answer.client)
    if sum(answer.n_samples for answer in answers) > 0:
        aggregate(port, study, state, this, answers)
    else:
        tell(port, port.name, "skipped", f"round {this.number + 1} changed nothing: no answer with samples came")


def aggregate(port: Port, study: Study, state: ServerState, this: Round, answers: list[Answer]) -> None:
    """Make the next version of the server's state out of these answers."""
    with port.busy(study.server_work_ns(answers), "aggregate"):
        state.all = study.folded(state.all, answers, this, state.version)
    state.version += 1


def close_round(port: Port, study: Study, state: ServerState, this: Round, tally: Tally, began_s: float) -> None:
    """Record a round that has ended, and what the method measures after it."""
    state.round += 1
    counts = (json.dumps(tally.given), len(tally.answers), tally.rejected, tally.gone)
    port.recorder.tell("rounds", state.round, tally.began_ns, port.now_ns, host_seconds() - began_s, *counts)
    for name, value in study.measures(state.all, this).items():
        port.recorder.tell("measures", state.round, port.name, name, value)


def _unfit(port: Port, message: Message, work: Outstanding) -> str:
    """Make an upload whole; why it cannot be taken, if it cannot."""
    try:
        take_up(port.name, message, work.down)
    except RunFailed as problem:
        return f"cannot be read: {problem.reason}"
    if message.round != work.round + 1:
        return f"is of round {work.round + 1} and says {message.round}"
    return "" if _finite(message.tensors) else "is not finite"


def _finite(tensors: Tensors) -> bool:
    """Whether every number is one: a sum is finite only then, unless it overflows."""
    return all(
        bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())
        for tensor in tensors.values()
        if tensor.is_floating_point()
    )
