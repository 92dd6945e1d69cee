"""How fast this machine trains the model of a study."""

from typing import Any

from pflsim.timing.calibration import measured_speed
from pflsim.timing.clock import host_nanoseconds

REPETITIONS, STEPS = 15, 20


def speed_here(study: Any) -> float:
    """The FLOP/s at which one thread trains a `pflsim.study.Study`'s model, with its batches, on the most data."""
    from pflsim.study import BACKWARD_PER_FORWARD  # which imports torch, as who has a study has done already

    client = max(range(len(study.names)), key=lambda number: int(study.federation.sizes[number]))
    times_s: list[float] = []
    spent = 0
    for visit in range(REPETITIONS + 1):
        task = study.task(client, visit, 0)
        began_ns = host_nanoseconds()
        task.sgd(study.initial, steps=STEPS)
        times_s.append((host_nanoseconds() - began_ns) / 1e9)
        spent = task.spent.forward_samples
    flops = spent * (1 + BACKWARD_PER_FORWARD) * study.network.forward_flops
    return measured_speed(flops, times_s[1:])  # the first one warms up
