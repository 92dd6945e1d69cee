"""The program of a coordinator: it tells peers where to find each other, lets them begin, and collects how they ended.

No model ever reaches it. Between the beginning and the end it only tells peers who may go on, under the virtual clock,
after which round they are written down, and who has left a run that goes on without them.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from nodes.keeping import Keeper
from pflsim.errors import RunFailed
from pflsim.messages.common_round import Chooser
from pflsim.messages.coordinator_port import CoordinatorPort
from pflsim.messages.port import seconds
from pflsim.messages.wire import BEGIN, FINISHED, JOIN, LOST, PLACES, READY, STATE, STOP
from pflsim.study import Study
from pflsim.timing.clock import host_seconds

Answers = dict[str, Mapping[str, Any]]


def coordinator(port: CoordinatorPort, study: Study, keeper: Keeper | None = None) -> None:
    """Bring the peers together, and wait for all of them to finish; in a run that is resumed, anew."""
    port.chooser = Chooser(study.names) if keeper is not None and keeper.every_s else None
    joined = _from_everybody(port, study, JOIN)
    for name, facts in joined.items():
        _require_the_same(study, name, facts)
        port.recorder.tell("events", name, "joined", "", port.now_ns, host_seconds())
    port.peers = study.names
    for number, name in enumerate(study.names):
        known = [study.names[other] for other in study.linked(number)]
        port.send(name, PLACES, facts={other: joined[other]["place"] for other in known})
    _from_everybody(port, study, READY)
    what, detail = "began", f"{len(study.names)} peers"
    if keeper is not None and keeper.resumed:
        port.begin_again(keeper.recorder_of(port.name))
        what, detail = "resumed", f"each after its round {keeper.resumed}"
    port.recorder.tell("events", port.name, what, detail, port.now_ns, host_seconds())
    port.recorder.flush()
    port.begin()  # for everybody: the stamp of BEGIN says since when time counts
    for name in study.names:
        port.send(name, BEGIN)
    began_s = host_seconds()
    finished = _from_everybody(port, study, FINISHED, without_lost=True)
    _stop(port, study, finished, began_s)


def _from_everybody(port: CoordinatorPort, study: Study, kind: str, *, without_lost: bool = False) -> Answers:
    """What every peer says, by name; this one's time goes on to the last. Raises RunFailed if one is lost too early."""
    for name in study.names:
        port.expect(name, kind)
    said: Answers = {}
    for _ in study.names:
        message = port.recv("control")
        if message.kind != LOST:
            said[message.sender] = message.facts
            port.clock.advance(port.asked_ns)
        elif not without_lost:
            raise RunFailed(message.sender, "is lost before the run has begun")
    return said


def _require_the_same(study: Study, name: str, facts: Mapping[str, Any]) -> None:
    for what, value in study.identity().items():
        if facts.get(what) != value:
            raise RunFailed(name, f"has {what} {facts.get(what)}, the coordinator has {value}")


def _stop(port: CoordinatorPort, study: Study, finished: Answers, began_s: float) -> None:
    """Stop everybody, and make the digests over every peer's state, in the order of their ids."""
    everything, trace = sha256(), sha256(port.trace_as_of(port.now_ns))
    port.arbiter = None
    there = [name for name in study.names if name not in port.lost]
    for name in there:
        come = {other: facts["sent"][name] for other, facts in finished.items() if name in facts["sent"]}
        port.send(name, STOP, facts={"come": come})
    last = _from_everybody_asked(port, there)
    if not last:
        raise RunFailed(port.name, f"nobody is left: all {len(study.names)} peers are lost")
    for name in last:
        everything.update(last[name]["digest"])
        trace.update(last[name]["trace"])
    finished = {name: finished[name] for name in last}
    rounds = [facts["rounds"] for facts in finished.values()]
    told = {
        "digest": everything.hexdigest(),
        "trace_digest": trace.hexdigest(),
        "stopped": "; ".join(sorted({facts["stopped"] for facts in finished.values()})),
        "rounds": min(rounds),
        "most_rounds": max(rounds),
        "simulated_s": seconds(port.now_ns),
        "wall_s": host_seconds() - began_s,
    }
    port.recorder.tell("events", port.name, "finished", json.dumps(told), port.now_ns, host_seconds())
    port.finish()


def _from_everybody_asked(port: CoordinatorPort, names: Sequence[str]) -> Answers:
    """What those of `names` say who are not lost, in their order."""
    said: Answers = {}
    for _ in names:
        message = port.recv("control")
        if message.kind != LOST:
            assert message.kind == STATE
            said[message.sender] = message.facts
    return {name: said[name] for name in names if name in said}
