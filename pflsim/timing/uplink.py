"""The sender's half of a link: decides, once and for all, when the bytes of each message leave."""

import math
from collections import deque
from collections.abc import Iterable, Sequence

from pflsim.timing.fair_share import INSTANT_NS, SLACK, Flight, Transfer, fair_level, instant

UnderWay = tuple[int, int, list[tuple[float, float]], dict[str, float]]


class _Sending:
    """A transfer while it is being stamped; times are ns since the uplink's base."""

    __slots__ = ("cap", "points", "rate", "ready", "sent", "start", "transfer")

    def __init__(self, transfer: Transfer, cap: float) -> None:
        self.transfer, self.cap = transfer, cap
        self.ready = math.inf  # when the pair's connection is free for it
        self.start = math.inf  # when its first byte leaves
        self.rate = 0.0
        self.sent = 0.0
        self.points: list[tuple[float, float]] = []

    def done_at(self, rate: float, now: float) -> float:
        """When its last byte leaves if from `now` on they leave at `rate`."""
        return now + (self.transfer.size_bytes - self.sent) / rate if rate else math.inf

    def put_out(self, rate: float, now: float, time: float, done: bool) -> None:
        """Put bytes out at `rate` from `now` until `time`; what is left of them too if it is then `done`."""
        if rate and self.start == math.inf:
            self.start = now
        elif rate == self.rate and self.points:
            self.points.pop()  # the same straight line goes on
        self.rate = rate
        self.sent = float(self.transfer.size_bytes) if done else self.sent + rate * (time - now)
        if self.start < math.inf and (done or time > now):
            self.points.append((time, self.sent))


class Uplink:
    """One actor's uplink of `rate` bytes/ns; its messages must be stamped in the order of simulated time."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._base_ns = 0  # the floats below are ns since then; it moves up whenever the link has been idle
        self._stamped_ns = 0
        self._left: list[tuple[float, float]] = []  # (until, capacity left): steps; after them all is left
        self._free: dict[str, float] = {}  # by receiver: when the last byte stamped for it has left

    def stamp(self, now_ns: int, transfers: Sequence[Transfer]) -> list[Flight]:
        """Stamp what is sent at the instant `now_ns`, in the order of `transfers`.

        All of it shares fairly what earlier stamps left of the uplink, each transfer capped by its receiver's
        downlink. Transfers to one receiver go one after another. Raises ValueError if `now_ns` goes back.
        """
        if now_ns < self._stamped_ns:
            raise ValueError(f"cannot stamp at {now_ns} ns what was sent before {self._stamped_ns} ns")
        self._stamped_ns = now_ns
        if self.rate == math.inf and all(transfer.downlink == math.inf for transfer in transfers):
            return [
                Flight(now_ns, latency_ns, math.inf, size_bytes, ((0.0, float(size_bytes)),))
                for _, size_bytes, _, latency_ns in transfers
            ]
        self._forget(now_ns)
        now = float(now_ns - self._base_ns)
        sendings = [_Sending(transfer, min(self.rate, transfer.downlink)) for transfer in transfers]
        queues: dict[str, deque[_Sending]] = {}
        for sending in sendings:
            queues.setdefault(sending.transfer.receiver, deque()).append(sending)
        for receiver, queue in queues.items():
            queue[0].ready = max(now, self._free.get(receiver, now))
        self._put_out(queues, now)
        return [self._flight(sending) for sending in sendings]

    def under_way(self) -> UnderWay:
        """What has been stamped and not left, to come back to."""
        return self._base_ns, self._stamped_ns, list(self._left), dict(self._free)

    def resume(self, under_way: UnderWay) -> None:
        """Go on from there, as if nothing had been stamped since."""
        self._base_ns, self._stamped_ns, left, free = under_way
        self._left, self._free = list(left), dict(free)

    def hang_up(self) -> None:
        """Forget what was still to leave."""
        self._left, self._free = [], {}

    def _forget(self, now_ns: int) -> None:
        """Drop what was over by `now_ns`; count from there if that is all, so that the floats stay exact."""
        now = now_ns - self._base_ns
        self._left = [step for step in self._left if step[0] > now]
        if not self._left:
            self._base_ns = now_ns
            self._free = {}

    def _put_out(self, queues: dict[str, deque[_Sending]], now: float) -> None:
        """Let the heads of `queues` share the capacity left, from one change of rates to the next."""
        steps: list[tuple[float, float]] = []
        while queues:
            until, left = self._left[0] if self._left else (math.inf, self.rate)
            heads = [queue[0] for queue in queues.values()]
            active = [head for head in heads if head.ready <= now]
            level = fair_level(left, [(head.cap, 1) for head in active])
            rates = [min(head.cap, level) for head in active]
            ends = [head.done_at(rate, now) for head, rate in zip(active, rates, strict=True)]
            time = instant(min([until, *ends, *(head.ready for head in heads if head.ready > now)]))
            for head, rate, end in zip(active, rates, ends, strict=True):
                done = end <= time + INSTANT_NS
                head.put_out(rate, now, time, done)
                if done:
                    self._next_of_pair(queues, head.transfer.receiver, time)
            if time > now:
                steps.append((time, _rest(left, level, rates)))
            if time == until:
                del self._left[0]
            now = time
        self._left = steps + self._left

    def _next_of_pair(self, queues: dict[str, deque[_Sending]], receiver: str, time: float) -> None:
        queue = queues[receiver]
        queue.popleft()
        self._free[receiver] = time
        if queue:
            queue[0].ready = time
        else:
            del queues[receiver]

    def _flight(self, sending: _Sending) -> Flight:
        """`sending` as it is told to the receiver: whole ns of departure, and the curve relative to that."""
        whole = math.floor(sending.start)
        points = [(time - whole, sent) for time, sent in sending.points]
        if sending.start > whole:
            points.insert(0, (sending.start - whole, 0.0))
        _, size_bytes, _, latency_ns = sending.transfer
        return Flight(self._base_ns + whole, latency_ns, self.rate, size_bytes, tuple(points))


def _rest(left: float, level: float, rates: Iterable[float]) -> float:
    """What `rates` leave of `left`: nothing at all when they were held at `level`, not a rounding error."""
    if left == math.inf:
        return left
    rest = left - math.fsum(rates)
    return rest if level == math.inf and rest > left * (SLACK - 1) else 0.0
