"""Rounds among neighbours: everybody works, sends its model to its neighbours, and learns from theirs.

`neighbours` waits for the models of the same round, or until a deadline; `asynchronous` for nobody.
"""

from collections.abc import Iterable, Sequence
from math import ceil

from nodes.peering import PeerState, Received, mix, quiet_until_ns, send, take_what_came, work
from pflsim.messages.peer_port import PeerPort
from pflsim.study import Study
from pflsim.timing.clock import NANOSECONDS

SHOWN = 8


def neighbours(port: PeerPort, study: Study, number: int, state: PeerState) -> None:
    """One round in step with the neighbours of this round, however slow they are, unless there is a deadline."""
    this, appointments = state.round, study.appointments
    to, sources = appointments.of_round(number, this)
    work(port, study, number, state)
    port.quiet_ns = quiet_until_ns(port, study, number, state)
    send(port, study, state, to)
    _await_models(port, study, number, state, sources)
    came = state.early.pop(this + 1, {})
    if not getattr(study.schedule, "only_active", True):
        sources = appointments.neighbours(number, this)
    mix(port, study, number, state, {other: came.get(other) or state.newest.get(other) for other in sources})


def asynchronous(port: PeerPort, study: Study, number: int, state: PeerState) -> None:
    """One round with whatever the neighbours have sent last, however old it is."""
    linked = study.appointments.neighbours(number, state.round)
    work(port, study, number, state)
    port.quiet_ns = quiet_until_ns(port, study, number, state)
    send(port, study, state, linked)
    take_what_came(port, study, number, state)
    mix(port, study, number, state, {other: state.newest.get(other) for other in linked})


def _await_models(port: PeerPort, study: Study, number: int, state: PeerState, sources: Sequence[int]) -> None:
    """Wait for this round's models, or until the deadline; not for those that have stopped before it."""
    this, deadline_s = state.round + 1, getattr(study.schedule, "deadline_s", None)
    until_ns = None if deadline_s is None else port.now_ns + ceil(deadline_s * NANOSECONDS)
    while missing := _missing(state, sources, this):
        port.awaits = f"the model of round {this} from {_names(study, missing)}"
        message = port.recv() if until_ns is None else port.recv_within(max(0, until_ns - port.now_ns))
        if message is None:
            break
        state.serve(port, study, number, message)
    port.awaits = ""


def _missing(state: PeerState, sources: Iterable[int], this: int) -> list[int]:
    came: dict[int, Received] = state.early[this]
    return [other for other in sources if other not in came and state.stopped.get(other, this) >= this]


def _names(study: Study, clients: Sequence[int]) -> str:
    shown = ", ".join(study.names[client] for client in clients[:SHOWN])
    return shown + (f" and {len(clients) - SHOWN} more" if len(clients) > SHOWN else "")
