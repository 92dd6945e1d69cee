"""How long a message to a host and back takes, and how many bytes a second get through, each way, as a run would have
them: over the connections that it would use, encryption included."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from pflsim.timing.links import wire_bytes

PINGS = 15
LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 25  # well below what a launcher and its hosts take in one piece
LONG_ENOUGH_S = 0.25
"""So long must a transfer take before its rate is believed."""

Ask = Callable[[bytes, int], tuple[float, int]]
"""Sends so many bytes, wants so many back: the seconds that it took, and the other end's clock (ns since 1970)."""


@dataclass(frozen=True)
class Link:
    """The connection between the launcher and one host, measured while nobody else used it."""

    latency_s: float
    """One way: half of what a small message and its answer take."""
    up_mbps: float
    """From the host to the launcher, in 10^6 bits a second of the bare line, as a description's `links` count them."""
    down_mbps: float
    clock_ahead_s: float
    """How far the host's clock is ahead of the launcher's."""


def measured_link(ask: Ask) -> Link:
    """Measure a connection, which takes some seconds."""
    trips: list[tuple[float, float]] = []
    for _ in range(PINGS):
        seconds, theirs_ns = ask(b"", 0)
        trips.append((seconds, theirs_ns / 1e9 - (time.time() - seconds / 2)))
    round_trip_s = median(seconds for seconds, _ in trips)
    down_mbps = _rate_mbps(lambda count: ask(bytes(count), 0)[0], round_trip_s)
    up_mbps = _rate_mbps(lambda count: ask(b"", count)[0], round_trip_s)
    return Link(round_trip_s / 2, up_mbps, down_mbps, min(trips)[1])


def _rate_mbps(seconds: Callable[[int], float], round_trip_s: float) -> float:
    """Of larger and larger transfers, the rate of the first that takes long enough."""
    count = LEAST_BYTES
    while (taken_s := seconds(count)) - round_trip_s < LONG_ENOUGH_S and count < MOST_BYTES:
        count = min(4 * count, MOST_BYTES)
    return 8 * wire_bytes([count]) / 1e6 / max(taken_s - round_trip_s, 1e-9)
