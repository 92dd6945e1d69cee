"""The program of a client: it works when it is asked, is evaluated when it is asked, and keeps what is private."""

from dataclasses import dataclass
from typing import Any

from pflsim.digest import digest_of
from pflsim.errors import RunFailed
from pflsim.federation import Tensors
from pflsim.messages.port import Port
from pflsim.messages.wire import EVAL, EVAL_RESULT, JOIN, RESULT, STATE, STOP, WORK, Message
from pflsim.study import Study


@dataclass
class ClientState:
    """All that a client keeps between two messages."""

    you: Tensors
    visits: int = 0
    before: Tensors | None = None
    """The private state before the last piece of work."""
    completed_ns: int = 0
    """When that work was done: until then everybody else sees the state before it."""

    def as_of(self, now_ns: int) -> tuple[Tensors, int]:
        """The private state at a simulated time, and the number of visits that made it."""
        if self.before is not None and now_ns < self.completed_ns:
            return self.before, self.visits - 1
        return self.you, self.visits


def client(port: Port, study: Study, number: int) -> None:
    """Run client `number` until the server says stop."""
    state = ClientState(study.method.client_init(study.client(number)))
    port.send("server", JOIN, facts=study.identity())
    while True:
        port.safe_point(state)
        message = port.recv()
        if message.kind == WORK:
            _work(port, study, number, state, message)
        elif message.kind == EVAL:
            _evaluate(port, study, number, state, message)
        elif message.kind == STOP:
            you, _ = state.as_of(port.asked_ns)
            port.send("server", STATE, facts={"digest": digest_of(you), "trace": port.trace_as_of(port.asked_ns)})
            port.finish()
            return


def _work(port: Port, study: Study, number: int, state: ClientState, message: Message) -> None:
    method, down, state.before = study.method, message.tensors, state.you
    if message.facts.get("restart"):
        state.you = method.client_init(study.client(number))
    task = study.task(number, state.visits, message.round - 1)
    declared = method.client_work(task, down) + study.reporting_work(task)
    with port.busy(study.work_ns(port.name, declared, state.visits)):
        reported = study.reported(task, down)
        state.you, up = method.client_step(state.you, down, task)
    if task.spent != declared:
        raise RunFailed(port.name, f"{study.method_name} declared {declared} and did {task.spent}")
    state.visits += 1
    state.completed_ns = port.now_ns
    port.send(
        "server",
        RESULT,
        up,
        reported,
        round=message.round,
        version=message.version,
        work_id=message.work_id,
        samples=task.n_samples,
    )


def _evaluate(port: Port, study: Study, number: int, state: ClientState, message: Message) -> None:
    you, visits = state.as_of(port.asked_ns)
    task = study.task(number, visits, message.round)
    scores: dict[str, dict[str, Any]] = {}
    for name, model in study.method.client_model(you, message.tensors, task).items():
        scores[name] = {}
        for split in study.evaluated_splits:
            result = task.evaluate(model, split)
            mean_loss = result.loss_sum / result.total if result.total else 0.0
            scores[name][split] = [result.correct, result.total, mean_loss]
    port.send("server", EVAL_RESULT, facts=scores, round=message.round, work_id=message.work_id)
