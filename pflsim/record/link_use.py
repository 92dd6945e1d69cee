"""Whether links of given rates could have carried all that a record says arrived, and by when it says so.

A link of rate R is a machine that works off jobs: a message of b bytes needs b / R of its time, not before its first
byte can be there and not after its arrival. Whatever the order, all jobs can be done in time if and only if the
preemptive rule "earliest deadline first" does them in time, and that is so if and only if between no two moments more
had to pass than R allows (Horn 1974). So one sweep checks all intervals.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pflsim.record.history import COORDINATOR, History, Transit
from pflsim.timing.links import Links, wire_bytes

SLACK_NS = 2.0
"""Arrivals are whole ns; and sums of floats round."""


class Load(NamedTuple):
    """Bytes that a link had to pass between two moments."""

    from_ns: int
    until_ns: int
    size_bytes: int


def overruns(history: History, links: Links) -> Iterator[str]:
    """One sentence for each uplink or downlink that carried more than it can."""
    up: defaultdict[str, list[Load]] = defaultdict(list)
    down: defaultdict[str, list[Load]] = defaultdict(list)
    for one in history.transits():
        if COORDINATOR in (one.sender, one.receiver):  # it has no link, and no model may pass it
            continue
        latency_ns, size_bytes = links.latency_ns(one.sender, one.receiver), _least_bytes(one)
        up[one.sender].append(Load(one.departure_ns, one.arrival_ns - latency_ns, size_bytes))
        down[one.receiver].append(Load(one.departure_ns + latency_ns, one.arrival_ns, size_bytes))
    for actor in sorted({*up, *down}):
        for name, loads, rate in (
            ("uplink", up[actor], links.uplink_rate(actor)),
            ("downlink", down[actor], links.downlink_rate(actor)),
        ):
            late = latest(loads, rate)
            if late is not None:
                load, late_ns = late
                yield (
                    f"the {name} of {actor} would have needed {math.ceil(late_ns)} ns more for what had passed it by "
                    f"{load.until_ns} ns"
                )


def latest(loads: Sequence[Load], rate: float) -> tuple[Load, float] | None:
    """The load that comes latest after its time, and by how many ns, when a link of `rate` bytes/ns passes all.

    None if none is late by more than SLACK_NS.
    """
    if rate == math.inf:
        return None
    worst: tuple[Load, float] | None = None
    waiting: list[tuple[int, float, int]] = []  # (until, ns of work left, index)
    ahead = sorted(loads)
    base_ns, now, following = 0, 0.0, 0  # `now` counts from when the link was last idle: no float holds late times
    while waiting or following < len(ahead):
        if not waiting and ahead[following].from_ns - base_ns >= now:
            base_ns, now = ahead[following].from_ns, 0.0
        while following < len(ahead) and ahead[following].from_ns - base_ns <= now:
            load = ahead[following]
            heapq.heappush(waiting, (load.until_ns - base_ns, load.size_bytes / rate, following))
            following += 1
        until_ns, left_ns, index = heapq.heappop(waiting)
        next_ns = ahead[following].from_ns - base_ns if following < len(ahead) else math.inf
        if now + left_ns > next_ns:
            heapq.heappush(waiting, (until_ns, left_ns - (next_ns - now), index))
            now = next_ns
            continue
        now += left_ns
        late_ns = now - until_ns
        if late_ns > SLACK_NS + 1e-9 * now and (worst is None or late_ns > worst[1]):
            worst = ahead[index], late_ns
    return worst


def _least_bytes(one: Transit) -> int:
    """What it weighs on the wire at least: with all its tensors in one frame, and nothing sent again."""
    return wire_bytes([one.header_bytes, *([one.payload_bytes] if one.payload_bytes else [])])
