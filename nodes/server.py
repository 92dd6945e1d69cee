"""The program of a server with synchronous rounds: draw a cohort, send, collect, fold in, evaluate, and stop."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from pflsim.digest import digest_of
from pflsim.errors import RunFailed
from pflsim.federation import Answer, Round, Tensors
from pflsim.messages.port import Port, seconds
from pflsim.messages.wire import EVAL, JOIN, STOP, WORK
from pflsim.study import Study
from pflsim.timing.clock import host_seconds


@dataclass
class ServerState:
    """All that the server keeps between two messages."""

    all: Tensors
    round: int = 0
    version: int = 0
    work_id: int = 0
    restart: set[int] = field(default_factory=set)
    """Clients whose upload was not finite; they begin anew when they work next."""


def server(port: Port, study: Study) -> None:
    """Run the federation from the first join to the last stop."""
    _await_joins(port, study)
    state = ServerState(study.method.server_init(study.federation))
    began_s = host_seconds()
    accuracy: float | None = None
    while True:
        port.safe_point(state)
        reason = _reason_to_stop(port, study, state, accuracy)
        if reason:
            break
        _round(port, study, state, began_s)
        if study.is_evaluated(state.round):
            accuracy = _evaluate(port, study, state)
    _finish(port, study, state, reason, began_s)


def _await_joins(port: Port, study: Study) -> None:
    for name in study.names:
        port.expect(name, JOIN)
    mine = study.identity()
    for _ in study.names:
        joined = port.recv()
        port.recorder.tell("events", joined.sender, "joined", "", port.now_ns, host_seconds())
        for what, value in mine.items():
            if joined.facts.get(what) != value:
                raise RunFailed(joined.sender, f"has {what} {joined.facts.get(what)}, the server has {value}")
    port.recorder.tell("events", port.name, "began", f"{len(study.names)} clients", port.now_ns, host_seconds())
    port.recorder.flush()


def _reason_to_stop(port: Port, study: Study, state: ServerState, accuracy: float | None) -> str | None:
    stop, rounds = study.description.run.stop, study.rounds
    if state.round >= rounds:
        return f"{rounds} rounds are done"
    if stop.simulated_s is not None and seconds(port.now_ns) >= stop.simulated_s:
        return f"{stop.simulated_s} simulated seconds have passed"
    if stop.accuracy is not None and accuracy is not None and accuracy >= stop.accuracy:
        return f"the accuracy of {stop.accuracy} is reached"
    if stop.bytes is not None and port.charged_bytes >= stop.bytes:
        return f"{stop.bytes} bytes have travelled"
    return None


def _round(port: Port, study: Study, state: ServerState, began_s: float) -> None:
    began_ns = port.now_ns
    this = study.round(state.round)
    ids = study.participants(state.all, this)
    sent: dict[int, Tensors] = {}
    for client in ids:
        state.work_id += 1
        sent[client] = study.method.server_down(state.all, client, this)
        facts = {"restart": True} if client in state.restart else None
        port.send(
            study.names[client],
            WORK,
            sent[client],
            facts,
            round=this.number + 1,
            version=state.version,
            work_id=state.work_id,
        )
    state.restart.difference_update(ids)
    answers = _collect(port, study, state, sent)
    if answers:
        with port.busy(study.server_work_ns(answers), "aggregate"):
            state.all = study.method.server_step(state.all, answers, this)
        state.version += 1
    else:
        port.recorder.tell("events", port.name, "skipped", "no answer came", port.now_ns, host_seconds())
    state.round += 1
    _tell_round(port, study, state, this, ids, len(answers), began_ns, began_s)


def _collect(port: Port, study: Study, state: ServerState, sent: Mapping[int, Tensors]) -> list[Answer]:
    """What the clients answer, in ascending client id; an upload that is not finite is rejected."""
    answers = []
    for _ in sent:
        result = port.recv()
        client = study.number_of[result.sender]
        if not _finite(result.tensors):
            state.restart.add(client)
            what = f"round {result.round}: the upload of {result.sender} is not finite"
            port.recorder.tell("events", result.sender, "rejected", what, port.now_ns, host_seconds())
            continue
        age = state.version - result.version
        answers.append(Answer(client, result.tensors, sent[client], age, result.samples))
    return sorted(answers, key=lambda answer: answer.client)


def _finite(tensors: Tensors) -> bool:
    """Whether every number is one: a sum is finite only then, unless it overflows."""
    return all(
        bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())
        for tensor in tensors.values()
        if tensor.is_floating_point()
    )


def _evaluate(port: Port, study: Study, state: ServerState) -> float:
    """Every client evaluates what it would receive now; takes no simulated time. The accuracy over all samples."""
    this = study.round(state.round)
    correct = total = 0
    with port.pause():
        for client, name in enumerate(study.names):
            port.send(name, EVAL, study.method.server_down(state.all, client, this), round=state.round)
        for _ in study.names:
            result = port.recv()
            client = study.number_of[result.sender]
            for position, (model, splits) in enumerate(result.facts.items()):
                for split, (right, among, loss) in splits.items():
                    told = (state.round, port.now_ns, client, model, split, right, among, loss)
                    port.recorder.tell("evaluations", *told)
                    if position == 0 and split == "test":
                        correct, total = correct + right, total + among
        port.recorder.flush()
    return correct / total if total else 0.0


def _tell_round(
    port: Port,
    study: Study,
    state: ServerState,
    this: Round,
    ids: Sequence[int],
    answered: int,
    began_ns: int,
    began_s: float,
) -> None:
    told = (
        began_ns,
        port.now_ns,
        host_seconds() - began_s,
        json.dumps(list(ids)),
        answered,
        len(ids) - answered,
    )
    port.recorder.tell("rounds", state.round, *told)
    for name, value in study.measures(state.all, this).items():
        port.recorder.tell("measures", state.round, port.name, name, value)


def _finish(port: Port, study: Study, state: ServerState, reason: str, began_s: float) -> None:
    """Stop everybody, and make the digests over the server's and every client's state, in the order of their ids."""
    everything, trace = sha256(digest_of(state.all)), sha256(port.trace)
    with port.pause():
        for name in study.names:
            port.send(name, STOP)
        last: dict[str, Mapping[str, Any]] = {}
        for _ in study.names:
            told = port.recv()
            last[told.sender] = told.facts
    for name in study.names:
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
