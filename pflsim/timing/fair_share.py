"""Fair shares of a link, and the flight of a message over it: what `uplink` writes and `downlink` reads.

Messages move as a fluid. While nothing changes, the flows at a link have constant rates, and these are
max-min fair: everybody gets the same, except who cannot use that much. Rates are bytes per nanosecond (1
Mbit/s = 1/8000), times are nanoseconds: whole numbers at the borders of this model, floats relative to a
near whole number inside of it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pflsim.errors import BadMessage

INSTANT_NS = 1e-3  # what is closer than this is one instant: far above rounding errors, far below a nanosecond
LEAST_RATE = 1.25e-10  # bytes/ns, 1 bit/s: with less than that, times would leave what can be counted
SLACK = 1 + 1e-9  # demands that exceed a capacity by rounding errors only are held to fit


def instant(time_ns: float) -> float:
    """`time_ns`, put back onto the whole nanosecond that only a rounding error lifted it above."""
    whole = math.floor(time_ns)
    return float(whole) if time_ns - whole < INSTANT_NS else time_ns


def fair_level(capacity: float, demands: list[tuple[float, int]]) -> float:
    """The rate that nobody exceeds when `capacity` is shared max-min fairly; infinite when all demands fit.

    `demands` are (rate, number of flows that want it); each flow then gets min(its demand, the level). The
    same bits whatever the order of `demands`.
    """
    if capacity == math.inf:
        return math.inf
    flows = sum(count for _, count in demands)
    for demand, count in sorted(demands):
        if demand * flows > capacity * SLACK:
            return max(capacity, 0.0) / flows
        capacity -= demand * count
        flows -= count
    return math.inf


class Transfer(NamedTuple):
    """`size_bytes` (on the wire) to be sent to `receiver`, whose downlink takes `downlink` bytes/ns."""

    receiver: str
    size_bytes: int
    downlink: float
    latency_ns: int


class Flight(NamedTuple):
    """A message under way, stamped by its sender for good: all that the receiver's link must know of it.

    `put_out` are the breakpoints (ns since `departure_ns`, bytes put out by then) of the sender's curve,
    which is linear between them and starts at (0, 0); the last one is (when the sender is done,
    `size_bytes`). `cap` is the sender's uplink rate: what waits inside the network does not come faster
    than that.
    """

    departure_ns: int
    latency_ns: int
    cap: float
    size_bytes: int
    put_out: tuple[tuple[float, float], ...]

    @property
    def first_byte_ns(self) -> int:
        """When the receiver's link may begin to take it in."""
        return self.departure_ns + self.latency_ns

    def share_by(self, time_ns: int) -> float:
        """Which share of it its sender has put out by `time_ns`."""
        elapsed = float(time_ns - self.departure_ns)
        before = (0.0, 0.0)
        for end, total in self.put_out:
            if elapsed < end:
                since, sent = before
                part = (elapsed - since) / (end - since) if elapsed > since else 0.0
                return max(0.0, sent + part * (total - sent)) / self.size_bytes
            before = (end, total)
        return 1.0

    def segment(self, index: int) -> tuple[float, float, float]:
        """(duration in ns, bytes, end in ns since departure) of the `index`-th piece of the curve."""
        begin, before = self.put_out[index - 1] if index else (0.0, 0.0)
        end, after = self.put_out[index]
        return end - begin, after - before, end

    def as_list(self) -> list[int | float]:
        """A flat list for a message's header: four numbers and two per breakpoint, usually one of these."""
        points = [number for point in self.put_out for number in point]
        return [self.departure_ns, self.latency_ns, self.cap, self.size_bytes, *points]

    @classmethod
    def from_list(cls, numbers: Sequence[int | float]) -> "Flight":
        """The flight that `as_list` described; raises BadMessage for anything that is none."""
        if not isinstance(numbers, list | tuple) or len(numbers) < 6 or len(numbers) % 2:
            raise BadMessage("a flight is an even number of numbers, at least six")
        departure_ns, latency_ns, cap, size_bytes = numbers[:4]
        whole = (departure_ns, latency_ns, size_bytes)
        if any(type(number) is not int or not 0 <= number < 2**62 for number in whole) or not size_bytes:
            raise BadMessage("a flight's departure, latency and size are whole numbers and not negative")
        if any(type(number) is not float for number in (cap, *numbers[4:])) or not cap >= LEAST_RATE:
            raise BadMessage("a flight's rate and breakpoints are floats, and its rate is above zero")
        put_out = tuple(zip(numbers[4::2], numbers[5::2], strict=True))
        _check_curve(put_out, size_bytes)
        return cls(int(departure_ns), int(latency_ns), cap, int(size_bytes), put_out)


def _check_curve(put_out: tuple[tuple[float, float], ...], size_bytes: float) -> None:
    time_ns, total = 0.0, 0.0
    for next_ns, next_total in put_out:
        if not (time_ns <= next_ns < 2.0**62 and total <= next_total <= size_bytes):  # false for NaN
            raise BadMessage("a flight's breakpoints must ascend and end at its size")
        time_ns, total = next_ns, next_total
    if total != size_bytes:
        raise BadMessage("a flight's breakpoints must end at its size")
