"""Rounds: a cohort works, and the server folds in what it answers, all of it or what comes before a deadline."""

from dataclasses import replace

from nodes.dispatch import ServerState, hand_out, take_in, tell, tell_round
from pflsim.federation import Answer, Round
from pflsim.messages.port import Port
from pflsim.schedules.deadline import Deadline
from pflsim.study import Study


def synchronous_round(port: Port, study: Study, state: ServerState, began_s: float) -> None:
    """Everybody in the cohort works, and the round ends when all have answered."""
    began_ns, this = port.now_ns, study.round(state.round, losses=state.losses)
    ids = study.participants(state.all, this)
    for client in ids:
        hand_out(port, study, state, client, this)
    answers = [take_in(port, study, state, port.recv("data")) for _ in ids]
    finite = [answer for answer in answers if answer is not None]
    _fold(port, study, state, this, finite)
    tell_round(port, study, state, this, ids, finite, len(answers) - len(finite), began_ns, began_s)


def deadline_round(port: Port, study: Study, state: ServerState, began_s: float) -> None:
    """More than are needed work; the round ends when enough have answered, or at the deadline with what there is."""
    schedule = study.schedule
    assert isinstance(schedule, Deadline)
    began_ns, this = port.now_ns, study.round(state.round, losses=state.losses)
    idle = [client for client in study.participants(state.all, this) if client not in state.outstanding]
    for client in idle:
        hand_out(port, study, state, client, this)
    fresh: list[Answer] = []
    late: list[Answer] = []
    rejected = extended = 0
    closes_ns = began_ns + schedule.deadline_ns
    while len(fresh) < schedule.wanted(len(study.names)) and (state.outstanding or not schedule.is_enough(len(fresh))):
        result = port.recv_within(max(0, closes_ns - port.now_ns), "data")
        if result is None:
            if schedule.is_enough(len(fresh)) or extended:
                break
            extended, closes_ns = 1, closes_ns + schedule.deadline_ns
            continue
        answer = take_in(port, study, state, result)
        if answer is None:
            rejected += 1
        elif result.round == this.number + 1:
            fresh.append(answer)
        elif schedule.late == "carry":
            late.append(replace(answer, weight=schedule.weight(answer.age)))
        else:
            tell(port, result.sender, "late", f"an answer of round {result.round} came in round {this.number + 1}")
    if fresh and not schedule.is_enough(len(fresh)):
        tell(port, port.name, "few", f"round {this.number + 1} closed with {len(fresh)} answers")
    _fold(port, study, state, this, [*fresh, *late])
    tell_round(port, study, state, this, idle, [*fresh, *late], rejected, began_ns, began_s)


def _fold(port: Port, study: Study, state: ServerState, this: Round, answers: list[Answer]) -> None:
    if answers:
        answers.sort(key=lambda answer: answer.client)
        with port.busy(study.server_work_ns(answers), "aggregate"):
            state.all = study.method.server_step(state.all, answers, this)
        state.version += 1
    else:
        tell(port, port.name, "skipped", "no answer came")
    state.round += 1
