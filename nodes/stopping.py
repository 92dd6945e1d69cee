"""When a run ends before its rounds are done, and when one without rounds gets nowhere."""

from math import ceil

from nodes.dispatch import ServerState
from pflsim.errors import RunFailed
from pflsim.messages.port import Port
from pflsim.study import Study
from pflsim.timing.clock import NANOSECONDS

MOST_IN_VAIN = 100
"""So many pieces of work for each client may come to nothing in a row, where nothing but answers ends a round."""

_WHY = {
    "cancelled": "were not answered within schedule.timeout_s = {timeout_s}",
    "gone": "were lost, as clients left before they had answered: they are never there for a whole visit",
    "rejected": "brought uploads that were not finite: the method diverges, a smaller training.step_size may help",
    "stale": "brought answers older than schedule.max_staleness = {max_staleness}",
}


def limit_reached(port: Port, study: Study) -> str | None:
    """Which limit of simulated time or of bytes the run has reached, in words, if it has."""
    stop, ends_ns = study.description.run.stop, stops_ns(study)
    if ends_ns is not None and port.now_ns >= ends_ns:
        return f"{stop.simulated_s} simulated seconds have passed"
    if stop.bytes is not None and port.charged_bytes >= stop.bytes:
        return f"{stop.bytes} bytes have travelled"
    return None


def stops_ns(study: Study) -> int | None:
    """When `run.stop.simulated_s` is over, in simulated nanoseconds, if it is set."""
    stop_s = study.description.run.stop.simulated_s
    return None if stop_s is None else ceil(stop_s * NANOSECONDS)


def require_progress(port: Port, study: Study, state: ServerState) -> None:
    """Raises RunFailed, with the commonest reason, when too much work in a row has come to nothing."""
    vain = state.in_vain
    if vain.total() < MOST_IN_VAIN * len(study.names):
        return
    reason, count = max(sorted(vain.items()), key=lambda one: one[1])
    settings = {name: getattr(study.schedule, name, None) for name in ("timeout_s", "max_staleness")}
    said = f"no answer was taken of {vain.total()} pieces of work in a row, up to round {state.round + 1}"
    raise RunFailed(port.name, f"{said}: {count} of them {_WHY[reason].format(**settings)}")
