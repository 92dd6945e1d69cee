"""Gossip with random neighbours: a peer pushes its model to some, or exchanges models with one at a time."""

from nodes.coding import sent_to_peers, take_from_peer
from nodes.peering import PeerState, be_there, fold, mix, next_work, note_lost, send, step, take_what_came, work, worked
from pflsim.federation import Tensors
from pflsim.messages.peer_port import PeerPort
from pflsim.messages.wire import LOST, PAIR, PAIRED, Message
from pflsim.schedules.push import Push
from pflsim.study import Study


def push(port: PeerPort, study: Study, number: int, state: PeerState) -> None:
    """One round of push gossip: work, push the model to some neighbours, and learn from what has come meanwhile."""
    assert isinstance(study.schedule, Push)
    work(port, study, number, state)
    send(port, study, state, study.appointments.partners(number, state.round, study.schedule.receivers))
    take_what_came(port, study, number, state)
    came, state.fresh = dict(state.fresh), []  # of two from one neighbour the later
    mix(port, study, number, state, came)


def pairs(port: PeerPort, study: Study, number: int, state: PeerState) -> None:
    """One round of pairwise gossip: work, and then an exchange with one neighbour; others are answered meanwhile."""
    before, after = _worked(port, study, number, state)
    state.you = added(state.you, before, after)
    for partner in study.appointments.partners(number, state.round, 1):
        if partner not in state.gone:
            _exchange(port, study, number, state, partner)


def _worked(port: PeerPort, study: Study, number: int, state: PeerState) -> tuple[Tensors, Tensors]:
    """The model at the start of the work, and what the work makes of it; it may be changed meanwhile."""
    while True:
        now = be_there(port, study, number, state)
        task, declared, work_ns = next_work(study, number, state)
        before = after = state.you
        leaves_ns = study.presence.leaves_ns(port.name, now.ns)
        is_lost = leaves_ns is not None and leaves_ns < now.ns + work_ns
        if is_lost and leaves_ns is not None:
            work_ns = leaves_ns - now.ns
        else:
            after = step(study, port.name, before, task, declared)
        for message in port.work_and_listen(work_ns, "lost work" if is_lost else "compute"):
            state.serve(port, study, number, message)
        if is_lost:
            note_lost(port, study, state)
        else:
            state.lost = 0
            worked(port, state, task)
            return before, after


def _exchange(port: PeerPort, study: Study, number: int, state: PeerState, partner: int) -> None:
    """Both move towards each other, from where they were when they sent their models; nobody if one is lost."""
    before = state.you
    (sent,) = sent_to_peers(study, port.name, state.exchanged, study.method.peer_shows(before), [partner])
    port.send(
        study.names[partner],
        PAIR,
        sent.tensors,
        round=state.round + 1,
        work_id=state.round + 1,
        coded=sent.coded,
    )
    port.awaits = f"the answer of {study.names[partner]}"
    while (message := port.recv("data")).kind != PAIRED:
        if message.kind != LOST:
            state.serve(port, study, number, message)
        if partner in state.gone or message.kind == LOST:
            port.awaits = ""
            return
    port.awaits = ""
    take_from_peer(study, port.name, state.exchanged, message)
    state.you = added(state.you, before, fold(study, number, before, {partner: message.tensors}, state.round))


def answer(port: PeerPort, study: Study, number: int, state: PeerState, message: Message) -> None:
    """Answer at once with the own model, and move towards that of who asked, as in its round: both by the same."""
    asking = study.number_of[message.sender]
    (sent,) = sent_to_peers(study, port.name, state.exchanged, study.method.peer_shows(state.you), [asking])
    port.send(message.sender, PAIRED, sent.tensors, round=message.round, work_id=message.work_id, coded=sent.coded)
    state.you = fold(study, number, state.you, {asking: message.tensors}, message.round - 1)


def added(now: Tensors, before: Tensors, after: Tensors) -> Tensors:
    """`now` changed as `before` became `after`."""
    if now is before:
        return after
    return {name: tensor + (after[name] - before[name]) for name, tensor in now.items()}
