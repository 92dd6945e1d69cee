"""The program of a peer: it learns on its own data, exchanges models with its neighbours, and evaluates itself."""

from functools import partial

from nodes.evaluation import scores, tell_models
from nodes.gossip import answer, pairs, push
from nodes.keeping import Keeper
from nodes.neighbours import asynchronous, neighbours
from nodes.peering import PeerState, TimeIsOver, initial
from pflsim.digest import digest_of
from pflsim.messages.common_round import Chosen
from pflsim.messages.crossing import Crossings
from pflsim.messages.peer_port import PeerPort
from pflsim.messages.port import seconds
from pflsim.messages.wire import BEGIN, BYE, COORDINATOR, FINISHED, HELLO, JOIN, PLACES, READY, STATE, STOP, WELCOME
from pflsim.record.consensus import FINAL, MOST_TOLD, SKETCH, flat, sketch
from pflsim.record.database import packed
from pflsim.schedules.asynchronous import Asynchronous
from pflsim.schedules.epidemic import Epidemic
from pflsim.schedules.neighbours import Neighbours
from pflsim.schedules.pairs import Pairs
from pflsim.schedules.push import Push
from pflsim.study import Study

ENGINES = (
    (Neighbours, neighbours),
    (Epidemic, neighbours),
    (Asynchronous, asynchronous),
    (Push, push),
    (Pairs, pairs),
)
"""What makes one round of a peer, by the form of its schedule."""


def peer(port: PeerPort, study: Study, number: int, keeper: Keeper | None = None) -> None:
    """Run peer `number`, from the beginning or from a checkpoint, until the coordinator says that all have finished."""
    if keeper is not None:
        port.crossings = Crossings(partial(keeper.keep_under_way, port.name))
        port.chosen = Chosen(keeper.every_s, keeper.resumed) if keeper.every_s else None
    state = _meet(port, study, number, keeper)
    one_round = next(engine for form, engine in ENGINES if isinstance(study.schedule, form))
    if one_round is pairs:
        state.answer = partial(answer, port, study, number, state)
    while not (stopped := _reason_to_stop(port, study, state)):
        port.safe_point(state)
        if keeper is not None and keeper.is_due_for(port, state.round):
            keeper.keep_peer(port, state.round, state)
        since_ns = port.now_ns
        try:
            if study.appointments.is_active(number, state.round):
                one_round(port, study, number, state)
            else:
                state.early.pop(state.round + 1, None)
        except TimeIsOver:
            stopped = _reason_to_stop(port, study, state)
            break
        state.round += 1
        port.recorder.tell("steps", state.round, number, since_ns, port.now_ns)
        if study.is_evaluated(state.round, since_ns, port.now_ns):
            _evaluate(port, study, number, state)
    run = study.description.run
    if state.round < study.rounds and (run.eval_every or run.eval_every_s) and state.evaluated < state.round:
        _evaluate(port, study, number, state)
    _finish(port, study, number, state, stopped)


def _meet(port: PeerPort, study: Study, number: int, keeper: Keeper | None) -> PeerState:
    """Join, learn where the others are, and connect; of two, the lesser greets first. The state to begin with.

    Nobody sends a model before all are ready, so who is resumed becomes what it was right behind saying so.
    """
    linked = [study.names[other] for other in study.linked(number)]
    for other in linked:
        port.listen_to(other)
    mine = port.place
    port.expect(COORDINATOR, PLACES)
    port.send(COORDINATOR, JOIN, facts=study.identity() | {"place": mine})
    port.awaits, knows_places, greeted = "the others to join", False, set[str]()
    while not knows_places or len(greeted) < len(linked):
        message = port.recv("control")
        if message.kind == PLACES:
            knows_places = True
            for other, (process, endpoint) in message.facts.items():
                port.meet(other, process, endpoint)
                if (mine[0], port.name) < (process, other):
                    port.send(other, HELLO)
        else:
            greeted.add(message.sender)
            if message.kind == HELLO:
                port.send(message.sender, WELCOME)
    port.send(COORDINATOR, READY)
    port.post()
    state = keeper.restore(port) if keeper and keeper.resumed else PeerState(initial(study, number))
    port.expect(COORDINATOR, BEGIN)
    port.recv("control")
    port.awaits, port.is_under_way = "", True
    return state


def _reason_to_stop(port: PeerPort, study: Study, state: PeerState) -> str:
    limit_s = study.description.run.stop.simulated_s
    if state.round >= study.rounds:
        return f"{study.rounds} rounds are done"
    if limit_s is not None and seconds(port.now_ns) >= limit_s:
        return f"{limit_s} simulated seconds have passed"
    return ""


def _evaluate(port: PeerPort, study: Study, number: int, state: PeerState) -> None:
    state.evaluated = state.round
    found = scores(study, number, state.visits, state.round, state.you, {}, state.last_models)
    for model, splits in found.items():
        for split, (correct, total, loss) in splits.items():
            told = (state.round, port.now_ns, number, model, split, correct, total, loss)
            port.recorder.tell("evaluations", *told)
    if study.description.record.consensus:
        shown = flat(study.method.peer_shows(state.you))
        sketched = sketch(shown, study.description.run.seed.train)
        port.recorder.tell("measures", state.round, port.name, SKETCH, packed(sketched))


def _finish(port: PeerPort, study: Study, number: int, state: PeerState, stopped: str) -> None:
    """Say that this peer has finished, and go on answering those that have not."""
    if state.round < study.rounds:
        for other in study.linked(number):
            port.send(study.names[other], BYE, round=state.round)
    port.post()
    port.send(COORDINATOR, FINISHED, facts={"rounds": state.round, "stopped": stopped, "sent": port.all_sent})
    port.has_finished = True
    waits_on = "control" if state.answer is None else None  # who answers nobody takes in all that came when all is over
    while (message := port.recv(waits_on)).kind != STOP:
        state.serve(port, study, number, message)
    stopped_ns = port.asked_ns
    for late in port.what_came_by(stopped_ns):
        state.serve(port, study, number, late)
    shown = flat(study.method.peer_shows(state.you))
    if study.description.record.consensus and len(study.names) * len(shown) <= MOST_TOLD:
        port.recorder.tell("measures", state.round, port.name, FINAL, packed(shown))
    tell_models(port, study, number, state.last_models)
    facts = {"digest": digest_of(state.you), "trace": port.trace_as_of(stopped_ns)}
    port.send(COORDINATOR, STATE, facts=facts)
    port.finish()
