"""Without rounds: so many clients are at work at any time, and what arrives is folded in as it comes."""

from nodes.dispatch import ServerState, hand_out, take_in, tell, tell_round
from pflsim.federation import Answer, Round
from pflsim.messages.port import Port
from pflsim.schedules.fedasync import FedAsync
from pflsim.schedules.fedbuff import FedBuff
from pflsim.study import Study


def arrivals(port: Port, study: Study, state: ServerState, began_s: float) -> None:
    """One round: for FedBuff a full buffer, for FedAsync as many arrivals as there are clients."""
    schedule = study.schedule
    assert isinstance(schedule, FedAsync | FedBuff)
    began_ns, this = port.now_ns, study.round(state.round)
    given: list[int] = []
    taken: list[Answer] = []
    rejected = 0
    while len(taken) < schedule.arrivals_per_round(len(study.names)):
        given += _keep_at_work(port, study, state, this)
        answer = take_in(port, study, state, port.recv("data"))
        if answer is None:
            rejected += 1
        elif not schedule.takes(answer.age):
            tell(port, study.names[answer.client], "stale", f"an answer of age {answer.age} is discarded")
        else:
            taken.append(answer)
            _fold(port, study, state, schedule, taken, this)
    state.round += 1
    tell_round(port, study, state, this, given, taken, rejected, began_ns, began_s)


def _keep_at_work(port: Port, study: Study, state: ServerState, this: Round) -> list[int]:
    """Hand work to idle clients, drawn anew each time, until as many are at work as the schedule wants."""
    schedule = study.schedule
    assert isinstance(schedule, FedAsync | FedBuff)
    given = []
    while len(state.outstanding) < schedule.concurrency:
        idle = [client for client in range(len(study.names)) if client not in state.outstanding]
        if not idle:
            break
        drawn = int(idle[study.dispatch_rng(state.work_id).integers(len(idle))])
        hand_out(port, study, state, drawn, this)
        given.append(drawn)
    return given


def _fold(
    port: Port, study: Study, state: ServerState, schedule: FedAsync | FedBuff, taken: list[Answer], this: Round
) -> None:
    folded = schedule.folds(taken)
    if not folded:
        return
    with port.busy(study.server_work_ns(folded), "aggregate"):
        state.all = schedule.fold(study.method, state.all, folded, this)
    state.version += 1
