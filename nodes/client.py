"""The program of a client: it works when it is asked, is evaluated when it is asked, and keeps what is private."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from nodes.coding import sent_up, take_down
from nodes.evaluation import Evaluated, scores, tell_models
from nodes.keeping import Keeper, stand
from pflsim.digest import digest_of
from pflsim.errors import RunFailed
from pflsim.federation import Tensors
from pflsim.learning.task import Task
from pflsim.learning.vector import unchanged
from pflsim.messages.port import Port
from pflsim.messages.wire import (
    CANCEL,
    CHECKPOINT,
    EVAL,
    EVAL_RESULT,
    GONE,
    JOIN,
    LOSS,
    PROBE,
    RESULT,
    STATE,
    STOP,
    WORK,
    Message,
)
from pflsim.record.accuracy import GRADIENTS
from pflsim.study import Study
from pflsim.timing.presence import NEVER_SEEN, Moment


@dataclass
class ClientState:
    """All that a client keeps between two messages."""

    you: Tensors
    visits: int = 0
    before: tuple[Tensors, int, Tensors] | None = None
    """The private state before the last piece of work, the visits that had made it, and the residuals."""
    completed_ns: int = 0
    """When that work was done: until then everybody else sees the state before it."""
    seen: Moment = NEVER_SEEN
    """When it last began to work."""
    work_id: int = 0
    """The last work that it was given."""
    attempts: int = 0
    """How often it was given work before, whatever became of it."""
    cancelled: dict[int, int] = field(default_factory=dict)
    """Work that was cancelled and has not been undone yet, and when it heard of that."""
    residuals: Tensors = field(default_factory=dict)
    """What its codec has left out of what it sent up."""
    received: dict[int, Tensors] = field(default_factory=dict)
    """By number of the work: what came down, where later messages are differences to it."""

    evaluated: Evaluated = field(default_factory=Evaluated)

    def as_of(self, now_ns: int) -> tuple[Tensors, int]:
        """The private state at a simulated time, and the number of visits that made it."""
        if self.before is not None and now_ns < self.completed_ns:
            return self.before[:2]
        return self.you, self.visits


class _Stopped(Exception):
    """The server has said stop."""


class _Cancelled(Exception):
    """The work in progress is cancelled."""


def client(port: Port, study: Study, number: int, keeper: Keeper | None = None) -> None:
    """Run client `number`, from the beginning or from a checkpoint, until the server says stop."""
    port.send("server", JOIN, facts=study.identity())
    state = _resumed(port, keeper) if keeper and keeper.resumed else ClientState(_initial(study, number))
    port.when_asked = partial(_reply, port, study, number, state)
    try:
        while True:
            port.safe_point(state)
            message = port.recv()
            if message.kind in (WORK, PROBE):
                _take_work(port, study, number, state, message)
            elif message.kind == CHECKPOINT and keeper is not None:
                stand(port, keeper, message, state)
            else:
                with suppress(_Cancelled):
                    _reply(port, study, number, state, message)
    except _Stopped:
        port.finish()


def _resumed(port: Port, keeper: Keeper) -> ClientState:
    """This client where it stood, when all go on."""
    port.post()
    state: ClientState = keeper.restore(port)
    port.recv("control")
    return state


def _take_work(port: Port, study: Study, number: int, state: ClientState, message: Message) -> None:
    """Work, unless it is cancelled: before it came, while it is done, or (as others see it) after it was done."""
    state.work_id = message.work_id
    take_down(study, port.name, state.received, message)
    if message.facts.get("rejected") and state.before is not None:
        state.you, _, state.residuals = state.before  # what the server did not take was never done
    state.before = state.you, state.visits, state.residuals
    try:
        (_work if message.kind == WORK else _report_loss)(port, study, number, state, message)
    except _Cancelled:
        port.answers_never(message)
    state.attempts += message.kind == WORK
    if message.work_id in state.cancelled:
        _undo(port, state)


def _undo(port: Port, state: ClientState) -> None:
    """The last work was never done: its answer is void, or is not taken by the server any more."""
    port.post()
    heard_ns = state.cancelled.pop(state.work_id)
    if state.before is not None:
        state.you, state.visits, state.residuals = state.before
    if port.now_ns >= heard_ns:
        port.undo(state.work_id, heard_ns)


def _work(port: Port, study: Study, number: int, state: ClientState, message: Message) -> None:
    """Do the work and send its result; whoever is away meanwhile loses it, and says so when it is back."""
    if not _await_return(port, study, message):
        return
    now = Moment(port.now_ns, message.round - 1)
    if study.presence.has_forgotten(port.name, state.seen, now):
        state.you, state.residuals = _initial(study, number), {}
    state.before, state.seen = (state.you, state.visits, state.residuals), now
    until_ns = message.facts.get("until_ns")
    within_ns = None if until_ns is None else until_ns - now.ns
    piece = study.piece_of_work(number, state.visits, state.attempts, message.round - 1, message.tensors, within_ns)
    task, declared, work_ns = piece
    leaves_ns = study.presence.leaves_ns(port.name, now.ns)
    if (task.steps == 0 and task.n_samples) or (leaves_ns is not None and leaves_ns < now.ns + work_ns):
        with port.busy(min(work_ns, leaves_ns - now.ns) if leaves_ns is not None else work_ns, "lost work"):
            pass
        _return(port, study, message)
        return
    with port.busy(work_ns):
        reported = study.reported(task, message.tensors)
        up = _step(study, state, message.tensors, task)
    if task.spent != declared:
        raise RunFailed(port.name, f"{study.method_name} declared {declared} and did {task.spent}")
    sent = sent_up(study, number, state.attempts, state.residuals, up, message.tensors)
    state.residuals = sent.residuals
    port.send(
        "server",
        RESULT,
        sent.tensors,
        reported,
        round=message.round,
        version=message.version,
        work_id=message.work_id,
        samples=task.n_samples,
        coded=sent.coded,
    )
    if leaves_ns is not None and not port.post(leaves_ns):
        state.you, _, state.residuals = state.before
        with port.busy(leaves_ns - port.now_ns, "lost send"):
            pass
        _return(port, study, message)
        return
    state.visits += 1
    port.tell_done("measures", message.round, port.name, GRADIENTS, task.spent.backward_samples)
    state.completed_ns = port.now_ns


def _report_loss(port: Port, study: Study, number: int, state: ClientState, message: Message) -> None:
    """Tell the loss at the model that came; whoever is away meanwhile says when it is back that it has none to tell."""
    if not _await_return(port, study, message):
        return
    task, now_ns = study.task(number, state.visits, message.round - 1), port.now_ns
    work_ns, leaves_ns = study.loss_ns(task, state.attempts), study.presence.leaves_ns(port.name, now_ns)
    if leaves_ns is not None and leaves_ns < now_ns + work_ns:
        with port.busy(leaves_ns - now_ns, "lost work"):
            pass
        _return(port, study, message)
        return
    with port.busy(work_ns, "evaluate"):
        told = study.loss(task, message.tensors)
    port.send("server", LOSS, facts=told, round=message.round, version=message.version, work_id=message.work_id)
    if leaves_ns is not None and not port.post(leaves_ns):
        with port.busy(leaves_ns - port.now_ns, "lost send"):
            pass
        _return(port, study, message)


def _step(study: Study, state: ClientState, down: Tensors, task: Task) -> Tensors:
    """The method's step; what travels up."""
    with unchanged(f"{study.method_name}.client_step", [*state.you.values(), *down.values(), study.initial]):
        state.you, up = study.method.client_step(state.you, down, task)
    sent: Tensors = up
    return sent


def _await_return(port: Port, study: Study, message: Message) -> bool:
    """Work that finds its client away waits for its return; False if it never returns."""
    back_ns = study.presence.back_ns(port.name, port.now_ns)
    if back_ns is None:
        port.answers_never(message)
        return False
    if back_ns > port.now_ns:
        with port.busy(back_ns - port.now_ns, "offline"):
            pass
    return True


def _return(port: Port, study: Study, message: Message) -> None:
    """Come back, and say that this work is lost."""
    if _await_return(port, study, message):
        kind = GONE if message.kind == WORK else LOSS
        port.send("server", kind, round=message.round, version=message.version, work_id=message.work_id)


def _reply(port: Port, study: Study, number: int, state: ClientState, message: Message) -> None:
    """Answer what takes no simulated time."""
    if message.kind == EVAL:
        _evaluate(port, study, number, state, message)
    elif message.kind == CANCEL:
        state.cancelled[message.work_id] = port.heard_ns(message)
        if state.work_id == message.work_id:
            _undo(port, state)
            raise _Cancelled
    elif message.kind == STOP:
        you, _ = state.as_of(port.asked_ns)
        tell_models(port, study, number, state.evaluated)
        port.send("server", STATE, facts={"digest": digest_of(you), "trace": port.trace_as_of(port.asked_ns)})
        raise _Stopped


def _evaluate(port: Port, study: Study, number: int, state: ClientState, message: Message) -> None:
    you, visits = state.as_of(port.asked_ns)
    found = scores(study, number, visits, message.round, you, message.tensors, state.evaluated)
    port.send("server", EVAL_RESULT, facts=found, round=message.round, work_id=message.work_id)


def _initial(study: Study, number: int) -> Tensors:
    with unchanged(f"{study.method_name}.client_init", [study.initial]):
        you: Tensors = study.method.client_init(study.client(number))
    return you
