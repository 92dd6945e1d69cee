"""The program of a server: await everybody, go from round to round as the schedule says, evaluate, and stop."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from nodes.arrivals import arrivals
from nodes.coding import would_be_seen
from nodes.dispatch import ServerState, remaining
from nodes.keeping import Keeper, let_go_on, take_checkpoint
from nodes.rounds import deadline_round, synchronous_round
from nodes.stopping import limit_reached
from pflsim.coding.direction import Made
from pflsim.digest import digest_of
from pflsim.errors import RunFailed
from pflsim.messages.port import Port, seconds
from pflsim.messages.wire import EVAL, JOIN, LOST, STOP
from pflsim.schedule import WithoutRounds
from pflsim.schedules.deadline import Deadline
from pflsim.schedules.sync import Sync
from pflsim.study import Study
from pflsim.timing.clock import host_seconds

ENGINES = ((Sync, synchronous_round), (Deadline, deadline_round), (WithoutRounds, arrivals))
"""What makes one round of a schedule, by its form: from one server version to the next, or N arrivals."""


def server(port: Port, study: Study, keeper: Keeper | None = None) -> None:
    """Run the federation from the first join, or from a checkpoint, to the last stop."""
    _await_joins(port, study)
    port.begin()
    state = _resumed(port, study, keeper) if keeper and keeper.resumed else _initial(study)
    began_s = host_seconds() - state.wall_s
    one_round = next(engine for form, engine in ENGINES if isinstance(study.schedule, form))
    while True:
        port.safe_point(state)
        reason = _reason_to_stop(port, study, state)
        if reason:
            break
        if keeper is not None and keeper.is_due(state.round):
            state.wall_s = host_seconds() - began_s
            take_checkpoint(port, study.names, keeper, state.round, state)
        since_ns = port.now_ns
        one_round(port, study, state, began_s)
        if study.is_evaluated(state.round, since_ns, port.now_ns):
            state.accuracy = _evaluate(port, study, state)
    _finish(port, study, state, reason, began_s)


def _initial(study: Study) -> ServerState:
    return ServerState(study.method.server_init(study.federation))


def _resumed(port: Port, study: Study, keeper: Keeper) -> ServerState:
    """The server as it was when all stood; they go on."""
    state: ServerState = keeper.restore(port)
    told = f"after round {state.round}"
    port.recorder.tell("events", port.name, "resumed", told, port.now_ns, host_seconds())
    port.recorder.flush()
    let_go_on(port, study.names)
    return state


def _await_joins(port: Port, study: Study) -> None:
    for name in study.names:
        port.expect(name, JOIN)
    mine = study.identity()
    for _ in study.names:
        joined = port.recv("control")
        if joined.kind == LOST:
            continue
        port.recorder.tell("events", joined.sender, "joined", "", port.now_ns, host_seconds())
        for what, value in mine.items():
            if joined.facts.get(what) != value:
                raise RunFailed(joined.sender, f"has {what} {joined.facts.get(what)}, the server has {value}")
    there = len(remaining(port, study))
    port.recorder.tell("events", port.name, "began", f"{there} clients", port.now_ns, host_seconds())
    port.recorder.flush()


def _reason_to_stop(port: Port, study: Study, state: ServerState) -> str | None:
    stop, rounds, accuracy = study.description.run.stop, study.rounds, state.accuracy
    if state.round >= rounds:
        return f"{rounds} rounds are done"
    if stop.accuracy is not None and accuracy is not None and accuracy >= stop.accuracy:
        return f"the accuracy of {stop.accuracy} is reached"
    return limit_reached(port, study)


def _evaluate(port: Port, study: Study, state: ServerState) -> float:
    """Every client evaluates what it would receive now; takes no simulated time. The accuracy over all samples."""
    this = study.round(state.round)
    correct = total = 0
    made: Made = {}
    with port.pause():
        asked = remaining(port, study)
        for client in asked:
            down = study.method.server_down(state.all, client, this)
            port.send(
                study.names[client],
                EVAL,
                would_be_seen(study, state.told, made, client, down, this.number),
                round=state.round,
            )
        for _ in asked:
            result = port.recv("evaluation")
            if result.kind == LOST:
                continue
            client = study.number_of[result.sender]
            for position, (model, splits) in enumerate(result.facts.items()):
                for split, (right, among, loss) in splits.items():
                    told = (state.round, port.now_ns, client, model, split, right, among, loss)
                    port.recorder.tell("evaluations", *told)
                    if position == 0 and split == "test":
                        correct, total = correct + right, total + among
        port.recorder.flush()
    return correct / total if total else 0.0


def _finish(port: Port, study: Study, state: ServerState, reason: str, began_s: float) -> None:
    """Stop everybody, and make the digests over the server's and every client's state, in the order of their ids.

    Of those who are still there: who is lost has no state that anybody could tell.
    """
    everything, trace = sha256(digest_of(state.all)), sha256(port.trace_as_of(port.now_ns))
    with port.pause():
        names = [study.names[client] for client in remaining(port, study)]
        for name in names:
            port.send(name, STOP)
        last: dict[str, Mapping[str, Any]] = {}
        for _ in names:
            told = port.recv("control")
            if told.kind != LOST:
                last[told.sender] = told.facts
    remaining(port, study)
    for name in sorted(last, key=study.number_of.__getitem__):
        everything.update(last[name]["digest"])
        trace.update(last[name]["trace"])
    finished = {
        "digest": everything.hexdigest(),
        "trace_digest": trace.hexdigest(),
        "stopped": reason,
        "rounds": state.round,
        "simulated_s": seconds(port.now_ns),
        "wall_s": host_seconds() - began_s,
    }
    port.recorder.tell("events", port.name, "finished", json.dumps(finished), port.now_ns, host_seconds())
    port.finish()
