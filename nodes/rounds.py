"""Rounds: a cohort works, and the server folds in what it answers, all of it or what comes before a deadline."""

from dataclasses import replace

from nodes.dispatch import (
    ServerState,
    Tally,
    cancel,
    close_round,
    fold,
    hand_out,
    reachable,
    remaining,
    take_in,
    tell,
)
from pflsim.errors import RunFailed
from pflsim.federation import Round
from pflsim.messages.port import Port
from pflsim.messages.wire import PROBE, Message
from pflsim.schedules.deadline import Deadline
from pflsim.study import Study
from pflsim.timing.presence import Moment


def synchronous_round(port: Port, study: Study, state: ServerState, began_s: float) -> None:
    """Everybody in the cohort works, and the round ends when all have answered."""
    this, tally, _ = _begin(port, study, state)
    while state.outstanding.keys() & set(tally.given):
        _take(port, study, state, port.recv("data"), tally)
    fold(port, study, state, this, tally.answers)
    close_round(port, study, state, this, tally, began_s)


def deadline_round(port: Port, study: Study, state: ServerState, began_s: float) -> None:
    """More than are needed work; the round ends when enough have answered, or at the deadline with what there is."""
    schedule = study.schedule
    assert isinstance(schedule, Deadline)
    if schedule.late == "partial":  # everybody stops at the deadline, so nobody is late
        _partial_round(port, study, state, began_s)
        return
    this, tally, closes_ns = _begin(port, study, state)
    fresh, extended, handed_ns = 0, False, port.now_ns
    while fresh < schedule.wanted(len(study.names)) and (state.outstanding or not schedule.is_enough(fresh)):
        message = port.recv_within(max(0, closes_ns - port.now_ns), "data")
        if message is None:
            if schedule.is_enough(fresh) or extended:
                break
            extended, closes_ns = True, 2 * closes_ns - handed_ns
            continue
        fresh += _take(port, study, state, message, tally)
    if schedule.late == "cancel":
        for client in sorted(state.outstanding):
            cancel(port, study, state, client)
    if fresh and not schedule.is_enough(fresh):
        tell(port, port.name, "few", f"round {this.number + 1} closed with {fresh} answers")
    fold(port, study, state, this, tally.answers)
    close_round(port, study, state, this, tally, began_s)


def _partial_round(port: Port, study: Study, state: ServerState, began_s: float) -> None:
    """Everybody sends the steps done by the deadline; who is away then, or leaves before its answer is in, is given up.

    So a round lasts until the deadline and for the transfers of the answers that leave then.
    """
    this, tally, closes_ns = _begin(port, study, state)
    while state.outstanding:
        since = Moment(closes_ns, state.round)
        leaves = {client: study.presence.away_ns(study.names[client], since) for client in state.outstanding}
        away = {client: moment_ns for client, moment_ns in leaves.items() if moment_ns is not None}
        message = port.recv_within(max(0, min(away.values()) - port.now_ns), "data") if away else port.recv("data")
        if message is None:
            for client in sorted(client for client, moment_ns in away.items() if moment_ns <= port.now_ns):
                cancel(port, study, state, client)
        else:
            _take(port, study, state, message, tally)
    fold(port, study, state, this, tally.answers)
    close_round(port, study, state, this, tally, began_s)


def _begin(port: Port, study: Study, state: ServerState) -> tuple[Round, Tally, int]:
    """Draw the cohort among those who can be asked, and hand out its work; and when the round closes at the latest."""
    candidates = await_somebody(port, study, state)
    tally = Tally(port.now_ns)
    candidates = _ask_losses(port, study, state, candidates, tally)
    this = study.round(state.round, candidates=candidates, losses=state.losses)
    tally.given = [client for client in study.participants(state.all, this) if client in candidates]
    closes_ns = port.now_ns + study.deadline_ns(tally.given)
    partial = getattr(study.schedule, "late", None) == "partial"
    for client in tally.given:
        hand_out(port, study, state, client, this, closes_ns if partial else None)
    return this, tally, closes_ns


def _ask_losses(port: Port, study: Study, state: ServerState, candidates: list[int], tally: Tally) -> list[int]:
    """Who may be drawn: all candidates, or, if the sampling asks some for their losses first, those who told theirs.

    With a deadline the server waits for losses as long as it would for work.
    """
    asked = study.cohorts.asked_first(state.round, candidates)
    if asked is None:
        return candidates
    this, lasts_ns = replace(study.round(state.round), cohort=asked), study.deadline_ns(asked)
    closes_ns = port.now_ns + lasts_ns
    for client in asked:
        state.losses.pop(client, None)
        hand_out(port, study, state, client, this, kind=PROBE)
    while state.outstanding.keys() & set(asked):
        message = port.recv_within(max(0, closes_ns - port.now_ns), "data") if lasts_ns else port.recv("data")
        if message is None:
            break
        _take(port, study, state, message, tally)
    return [client for client in reachable(port, study, state) if client in asked and client in state.losses]


def _take(port: Port, study: Study, state: ServerState, message: Message, tally: Tally) -> bool:
    """Take in what came; whether it is an answer of this round. A late one is carried into it or dropped."""
    answer, schedule = take_in(port, study, state, message, tally), study.schedule
    if answer is None:
        return False
    if message.round == state.round + 1:
        tally.answers.append(answer)
        return True
    if isinstance(schedule, Deadline) and schedule.late == "carry":
        tally.answers.append(replace(answer, weight=schedule.weight(answer.age)))
    else:
        tell(port, message.sender, "late", f"an answer of round {message.round} came in round {state.round + 1}")
    return False


def await_somebody(port: Port, study: Study, state: ServerState, until_ns: int | None = None) -> list[int]:
    """The clients that can be asked; if nobody can, the server waits for the first to return, or until then."""
    candidates = reachable(port, study, state)
    if candidates or state.outstanding:
        return candidates
    now_ns = port.now_ns
    names = [study.names[client] for client in remaining(port, study)]
    asked = [study.presence.askable_ns(name, Moment(now_ns, state.round)) for name in names]
    returns_ns = [moment_ns for moment_ns in asked if moment_ns is not None]
    if returns_ns:
        with port.busy(min([*returns_ns, *([] if until_ns is None else [until_ns])]) - now_ns, "idle"):
            pass
        return reachable(port, study, state)
    if study.presence.changes_with_rounds:
        return []
    raise RunFailed(port.name, f"nobody is there in round {state.round + 1}, and nobody will ever return")
