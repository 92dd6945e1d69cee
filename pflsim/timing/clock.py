"""The two clocks, and the host's: nothing else in `pflsim` and `nodes` reads that one.

An actor's clock counts simulated nanoseconds since the run began. Under the virtual clock nobody sleeps: time moves
to the arrival of a message, and past the cost of the work. Under the wall clock simulated time is real time, less
what evaluation took.
"""

import time
from collections.abc import Callable
from typing import Protocol

from pflsim.errors import BadMessage, RunFailed

NANOSECONDS = 1_000_000_000
LAST_NS = 2**62
"""146 years: simulated time ends before."""


def host_seconds() -> float:
    """Seconds on the host's monotonic clock, the same for all processes of one machine."""
    return time.monotonic()


def host_nanoseconds() -> int:
    """Nanoseconds on the host's monotonic clock, the same for all processes of one machine."""
    return time.monotonic_ns()


class Stopwatch:
    """How many seconds of the host's have passed since it was made, or started anew."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """None have passed now."""
        self._since_s = host_seconds()

    @property
    def seconds(self) -> float:
        """How many have."""
        return host_seconds() - self._since_s


def require_countable(actor: str, what: str, ends_ns: int) -> None:
    """Raises RunFailed for what would end after the end of simulated time."""
    if ends_ns >= LAST_NS:
        reason = f"{what} would last until {ends_ns / NANOSECONDS:.3g} simulated s"
        raise RunFailed(actor, f"{reason}, and simulated time ends after {LAST_NS / NANOSECONDS:.3g} s (146 years)")


class Clock(Protocol):
    """One actor's time."""

    paused_ns: int
    """For how long this actor's clock has stopped so far; only the wall clock ever stops."""

    def now_ns(self) -> int:
        """Simulated nanoseconds since the run began."""

    def advance(self, to_ns: int) -> None:
        """It is now at least `to_ns`."""

    def go_back(self, to_ns: int) -> None:
        """What was done since `to_ns` is undone; only where time moves as messages say."""

    waits_for_everybody: bool
    """Whether a message may only be handed out when everybody who owes an answer has one in hand."""

    def has_come(self, due_ns: int) -> bool:
        """Whether it can be `due_ns` now."""

    def heard_ns(self, begins_ns: int, settled_ns: int) -> int:
        """When what begins at `begins_ns` begins for this actor, for whom all before `settled_ns` is settled."""

    def seconds_until(self, due_ns: int) -> float | None:
        """How long to really wait for `due_ns`; None where only a message can bring time forward."""

    def begin(self) -> None:
        """It is 0 now."""

    def pause(self) -> None:
        """Stop, for something that takes no simulated time."""

    def resume(self) -> None:
        """Go on."""


class VirtualClock:
    """Time as the messages and the costs of work say; how long anything really takes does not matter."""

    waits_for_everybody = True

    def __init__(self) -> None:
        self.paused_ns = 0
        self._now_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, to_ns: int) -> None:
        if to_ns > self._now_ns:
            self._now_ns = to_ns

    def go_back(self, to_ns: int) -> None:
        self._now_ns = min(self._now_ns, to_ns)

    def has_come(self, due_ns: int) -> bool:
        return True

    def heard_ns(self, begins_ns: int, settled_ns: int) -> int:
        if begins_ns < settled_ns:
            raise BadMessage(f"it begins at {begins_ns} ns, where all before {settled_ns} ns is settled")
        return begins_ns

    def seconds_until(self, due_ns: int) -> float | None:
        return None

    def begin(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


class WallClock:
    """Real time since `started_ns` on the host's monotonic clock, less the pauses."""

    waits_for_everybody = False

    def __init__(self, started_ns: int) -> None:
        self.paused_ns = 0
        self._started_ns = started_ns
        self._stopped_at_ns: int | None = None
        self._latest_ns = 0

    def now_ns(self) -> int:
        if not self.paused_ns:  # nobody has said yet that the run begins
            return 0
        host_ns = host_nanoseconds() if self._stopped_at_ns is None else self._stopped_at_ns
        # Who hears late of a pause stands still until time has caught up: what it has done meanwhile has happened.
        self._latest_ns = max(self._latest_ns, host_ns - self._started_ns - self.paused_ns)
        return self._latest_ns

    def advance(self, to_ns: int) -> None:
        pass

    def go_back(self, to_ns: int) -> None:
        pass

    def has_come(self, due_ns: int) -> bool:
        return due_ns <= self.now_ns() or self._stopped_at_ns is not None

    def heard_ns(self, begins_ns: int, settled_ns: int) -> int:
        return max(begins_ns, settled_ns)  # the host may have been slower than the simulated link

    def seconds_until(self, due_ns: int) -> float | None:
        return max(0, due_ns - self.now_ns()) / NANOSECONDS

    def begin(self) -> None:
        self.paused_ns = host_nanoseconds() - self._started_ns

    def pause(self) -> None:
        self._stopped_at_ns = host_nanoseconds()

    def resume(self) -> None:
        if self._stopped_at_ns is not None:
            self.paused_ns += host_nanoseconds() - self._stopped_at_ns
        self._stopped_at_ns = None


def clock_maker(mode: str, started_ns: int) -> Callable[[], Clock]:
    """What makes each actor's clock in `mode`; the only place that asks which mode it is."""
    if mode == "virtual":
        return VirtualClock
    return lambda: WallClock(started_ns)
