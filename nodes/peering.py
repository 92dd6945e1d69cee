"""What a peer keeps, and how it works and learns from others; the same for every way of exchanging models."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nodes.coding import Exchanged, sent_to_peers, take_from_peer
from nodes.evaluation import Evaluated
from pflsim.errors import RunFailed
from pflsim.federation import Neighbour, Tensors
from pflsim.kept import NOT_KEPT
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import unchanged
from pflsim.messages.licence import FAR_NS
from pflsim.messages.peer_port import PeerPort
from pflsim.messages.port import seconds
from pflsim.messages.wire import BYE, PUSH, Message
from pflsim.record.accuracy import GRADIENTS
from pflsim.study import Study
from pflsim.timing.presence import NEVER_SEEN, Moment

MOST_LOST = 1000
"""So many pieces of work may be lost in a row; who loses more never stays long enough."""


class TimeIsOver(Exception):
    """The run ends in the middle of a round of this peer."""


class Received(NamedTuple):
    """What a neighbour has sent."""

    shown: Tensors
    round: int
    left_ns: int


@dataclass
class PeerState:
    """All that a peer keeps between two messages."""

    you: Tensors
    round: int = 0
    """How many rounds of its own it has done."""
    evaluated: int = 0
    """After how many rounds it was evaluated last."""
    last_models: Evaluated = field(default_factory=Evaluated)
    """What was evaluated then."""
    visits: int = 0
    """How often it has worked."""
    attempts: int = 0
    """The same, with the work that was lost."""
    lost: int = 0
    """How many pieces of work were lost since the last that was not."""
    seen: Moment = NEVER_SEEN
    """When it last began to work."""
    newest: dict[int, Received] = field(default_factory=dict)
    """By neighbour: the last that has come of it."""
    early: defaultdict[int, dict[int, Received]] = field(default_factory=lambda: defaultdict(dict))
    """By round and neighbour: what has come for rounds that this peer has not ended."""
    fresh: list[tuple[int, Received]] = field(default_factory=list)
    """What has come since this peer last looked, with its sender."""
    stopped: dict[int, int] = field(default_factory=dict)
    """By neighbour that has stopped: after how many rounds."""
    gone: set[int] = field(default_factory=set)
    """Neighbours that have left the run by accident: they are no part of the graph any more."""
    exchanged: Exchanged = field(default_factory=Exchanged)
    """What the codec of the models remembers."""
    planned: tuple[tuple[int, int, int], tuple[Task, Work, int]] | None = field(default=None, metadata=NOT_KEPT)
    """The next piece of work, and of which visit, attempt and round it is."""
    answer: Callable[[Message], None] | None = field(default=None, metadata=NOT_KEPT)
    """Answers what another peer asks for, where peers do that."""

    def serve(self, port: PeerPort, study: Study, number: int, message: Message) -> None:
        """Take in what a neighbour says."""
        client = study.number_of[message.sender]
        take_from_peer(study, port.name, self.exchanged, message)
        if message.kind == PUSH:
            received = Received(message.tensors, message.round, message.left_ns)
            self.newest[client] = received
            if message.round > self.round:
                self.early[message.round][client] = received
            self.fresh.append((client, received))
        elif message.kind == BYE:
            self.stopped[client] = message.round
            if message.facts.get("lost"):
                self.gone.add(client)
                self.newest.pop(client, None)
        elif self.answer is not None:
            self.answer(message)


def initial(study: Study, number: int) -> Tensors:
    """The private state before the first round."""
    with unchanged(f"{study.method_name}.client_init", [study.initial]):
        you: Tensors = study.method.client_init(study.client(number))
    return you


def be_there(port: PeerPort, study: Study, number: int, state: PeerState) -> Moment:
    """Wait for the return of a peer that is away; what it has lost meanwhile it has lost."""
    back_ns = study.presence.back_ns(port.name, port.now_ns)
    if back_ns is None:
        raise RunFailed(port.name, f"is away from {port.now_ns} ns on and never returns; its neighbours wait in vain")
    if back_ns > port.now_ns:
        with port.busy(back_ns - port.now_ns, "offline"):
            pass
    now = Moment(port.now_ns, state.round)
    if study.presence.has_forgotten(port.name, state.seen, now):
        state.you = initial(study, number)
    state.seen = now
    return now


def next_work(study: Study, number: int, state: PeerState) -> tuple[Task, Work, int]:
    """The task of this peer's next piece of work, the work in it, and how many nanoseconds it takes."""
    piece = _planned(study, number, state, state.round)
    state.attempts += 1
    return piece


def _planned(study: Study, number: int, state: PeerState, round: int) -> tuple[Task, Work, int]:
    """The next piece of work, if it is of that round; worked out once, though it is foreseen and then done."""
    of = state.visits, state.attempts, round
    if state.planned is None or state.planned[0] != of:
        state.planned = of, study.piece_of_work(number, *of, {})
    return state.planned[1]


def work(port: PeerPort, study: Study, number: int, state: PeerState) -> None:
    """Work on the own data until it is done without leaving in between."""
    while True:
        now = be_there(port, study, number, state)
        task, declared, work_ns = next_work(study, number, state)
        leaves_ns = study.presence.leaves_ns(port.name, now.ns)
        if leaves_ns is None or leaves_ns >= now.ns + work_ns:
            break
        with port.busy(leaves_ns - now.ns, "lost work"):
            pass
        note_lost(port, study, state)
    state.lost = 0
    port.round = state.round + 1
    with port.busy(work_ns):
        state.you = step(study, port.name, state.you, task, declared)
    worked(port, state, task)


def note_lost(port: PeerPort, study: Study, state: PeerState) -> None:
    """Work was lost again. Raises TimeIsOver when the run ends before the next try, RunFailed when that has no end."""
    state.lost += 1
    limit_s = study.description.run.stop.simulated_s
    if limit_s is not None and seconds(port.now_ns) >= limit_s:
        raise TimeIsOver
    if state.lost >= MOST_LOST:
        raise RunFailed(port.name, f"has left {state.lost} times in a row before its work was done")


def worked(port: PeerPort, state: PeerState, task: Task) -> None:
    """A piece of work is done, and has cost so many gradients."""
    state.visits += 1
    port.tell_done("measures", state.round + 1, port.name, GRADIENTS, task.spent.backward_samples)


def step(study: Study, name: str, you: Tensors, task: Task, declared: Work) -> Tensors:
    """What the method's own work makes of the private state."""
    with unchanged(f"{study.method_name}.client_step", [*you.values(), study.initial]):
        changed: Tensors = study.method.client_step(you, {}, task)[0]
    if task.spent != declared:
        raise RunFailed(name, f"{study.method_name} declared {declared} and did {task.spent}")
    return changed


def quiet_until_ns(port: PeerPort, study: Study, number: int, state: PeerState) -> int:
    """When this peer, which has just worked, will speak next at the earliest: after its next piece of work."""
    if study.description.run.stop.simulated_s is not None or not study.presence.is_certain:
        return 0  # it may say goodbye at any time, or begin anew at another one
    if state.round + 1 >= study.rounds:
        return FAR_NS
    return port.now_ns + _planned(study, number, state, state.round + 1)[2]


def send(port: PeerPort, study: Study, state: PeerState, to: Iterable[int]) -> None:
    """Show the model to others that are still in the run, all at one instant."""
    shown, others = study.method.peer_shows(state.you), [other for other in to if other not in state.gone]
    for other, sent in zip(others, sent_to_peers(study, port.name, state.exchanged, shown, others), strict=True):
        port.send(study.names[other], PUSH, sent.tensors, round=state.round + 1, coded=sent.coded)
    port.quiet_ns = 0


def take_what_came(port: PeerPort, study: Study, number: int, state: PeerState) -> None:
    """Take in what has come by now."""
    while (message := port.recv_within(0)) is not None:
        state.serve(port, study, number, message)


def mix(port: PeerPort, study: Study, number: int, state: PeerState, came: Mapping[int, Received | None]) -> None:
    """Learn from what has come of these neighbours, if anything; how old that is, is recorded."""
    there = {other: received for other, received in sorted(came.items()) if received is not None}
    if not there:
        return
    for other, received in there.items():
        age_s = seconds(port.now_ns - received.left_ns)
        port.recorder.tell("measures", state.round + 1, port.name, f"age of {study.names[other]}, s", age_s)
    with port.busy(study.mixing_ns(port.name, len(there)), "mix"):
        models = {other: received.shown for other, received in there.items()}
        state.you = fold(study, number, state.you, models, state.round)


def fold(study: Study, number: int, you: Tensors, models: Mapping[int, Tensors], round: int) -> Tensors:
    """The private state after learning from neighbours' models, in the order of their ids."""
    others = sorted(models)
    weights = study.appointments.weights(number, round, others)
    neighbours = [Neighbour(other, models[other], *both) for other, both in zip(others, weights, strict=True)]
    came = [tensor for neighbour in neighbours for tensor in neighbour.shown.values()]
    with unchanged(f"{study.method_name}.peer_step", [*you.values(), *came, study.initial]):
        changed: Tensors = study.method.peer_step(you, neighbours, study.round(round))
    return changed
