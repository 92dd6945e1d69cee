"""Without rounds: so many clients are at work at any time, and what arrives is folded in as it comes."""

from nodes.dispatch import ServerState, Tally, aggregate, cancel, close_round, hand_out, remaining, take_in, tell
from nodes.rounds import await_somebody
from nodes.stopping import limit_reached, require_progress, stops_ns
from pflsim.errors import RunFailed, few
from pflsim.federation import Round
from pflsim.messages.port import Port
from pflsim.messages.wire import Message
from pflsim.schedule import WithoutRounds
from pflsim.study import Study
from pflsim.timing.presence import Moment


def arrivals(port: Port, study: Study, state: ServerState, began_s: float) -> None:
    """One round, or less when the run ends: for FedBuff a full buffer, for FedAsync as many arrivals as clients."""
    schedule = _schedule(study)
    this, tally = study.round(state.round), Tally(port.now_ns)
    while len(tally.answers) < schedule.arrivals_per_round(len(study.names)) and not limit_reached(port, study):
        require_progress(port, study, state)
        _keep_at_work(port, study, state, this, tally)
        message = _next(port, study, state, tally)
        _give_up(port, study, state)
        answer = None if message is None else take_in(port, study, state, message, tally)
        if answer is None:
            continue
        if not schedule.takes(answer.age):
            tell(port, study.names[answer.client], "stale", f"an answer of age {answer.age} is discarded")
            state.in_vain["stale"] += 1
            continue
        state.in_vain.clear()
        tally.answers.append(answer)
        folded = schedule.folds(tally.answers)
        if folded:
            aggregate(port, study, state, this, folded)
    close_round(port, study, state, this, tally, began_s)


def _next(port: Port, study: Study, state: ServerState, tally: Tally) -> Message | None:
    """The next answer; None when before it somebody returns and can work, work takes too long, or the run ends."""
    schedule = _schedule(study)
    moments = [] if (ends_ns := stops_ns(study)) is None else [ends_ns]
    if schedule.timeout_ns is not None:
        moments += [work.given_ns + schedule.timeout_ns for work in state.outstanding.values()]
    if len(state.outstanding) < schedule.concurrency and not study.presence.is_certain:
        now = Moment(port.now_ns, state.round)
        idle = [client for client in remaining(port, study) if client not in state.outstanding]
        names = [study.names[client] for client in schedule.may_work(idle, tally.answers)]
        moments += [moment_ns for name in names if (moment_ns := study.presence.askable_ns(name, now)) is not None]
    return port.recv_within(max(0, min(moments) - port.now_ns), "data") if moments else port.recv("data")


def _give_up(port: Port, study: Study, state: ServerState) -> None:
    """Cancel work that has taken too long."""
    schedule = _schedule(study)
    if schedule.timeout_ns is not None:
        for client, work in sorted(state.outstanding.items()):
            if work.given_ns + schedule.timeout_ns <= port.now_ns:
                cancel(port, study, state, client)


def _keep_at_work(port: Port, study: Study, state: ServerState, this: Round, tally: Tally) -> None:
    """Hand work to idle clients, drawn anew each time, until as many are at work as the schedule wants."""
    schedule, there = _schedule(study), await_somebody(port, study, state, stops_ns(study))
    if not there and not state.outstanding and not limit_reached(port, study):
        away = few(study.names)
        raise RunFailed(port.name, f"faults keep {away} away in round {state.round + 1}, which only answers can end")
    idle = schedule.may_work(there, tally.answers)
    while idle and len(state.outstanding) < schedule.concurrency:
        drawn = idle[int(study.dispatch_rng(state.work_id).integers(len(idle)))]
        if schedule.same and state.answered in idle:
            drawn = state.answered
        idle.remove(drawn)
        hand_out(port, study, state, drawn, this)
        tally.given.append(drawn)


def _schedule(study: Study) -> WithoutRounds:
    assert isinstance(study.schedule, WithoutRounds)  # or the server would not have come here
    return study.schedule
