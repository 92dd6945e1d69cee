"""Who can work and be reached when: availability and crashes together, as a client's own program and the server see it.

A client that is away is not asked; work that reaches it then waits for its return. A client that leaves during its work
loses it, is away until it returns, and then says so. The server knows who is there, as a service to which clients
connect knows it.
"""

from typing import NamedTuple

from pflsim.timing.availability import Availability
from pflsim.timing.faults import Crash, Faults
from pflsim.timing.traces import SERVER


class Moment(NamedTuple):
    """A simulated time and a round, as crashes are dated in either."""

    ns: int
    round: int


NEVER_SEEN = Moment(-1, -1)


class Presence:
    """When each client is there."""

    def __init__(self, availability: Availability, faults: Faults) -> None:
        self._availability, self._faults = availability, faults

    @property
    def is_certain(self) -> bool:
        """Whether it is known that nobody ever leaves."""
        return self._availability.is_always and not any(fault.kind == "crash" for fault in self._faults.faults)

    def can_be_asked(self, client: str, now: Moment) -> bool:
        """Whether the server finds `client` there and can reach it."""
        if self._faults.crash(client, *now) or self._faults.is_cut(SERVER, client, *now):
            return False
        return self._availability.is_available(client, now.ns)

    def askable_ns(self, client: str, now: Moment) -> int | None:
        """From when on the server finds `client` there and can reach it; None if never, or if rounds decide it."""
        at_ns: int | None = now.ns
        while at_ns is not None:
            moment = Moment(at_ns, now.round)
            if self.can_be_asked(client, moment):
                return at_ns
            back_ns = self.back_ns(client, at_ns)
            passes_ns = None if back_ns is None else self._faults.passes_ns(SERVER, client, back_ns, now.round)
            if passes_ns == at_ns:
                return None
            at_ns = passes_ns
        return None

    @property
    def changes_with_rounds(self) -> bool:
        """Whether some client is away, or cut off, in some rounds."""
        return self._faults.in_rounds

    def back_ns(self, client: str, at_ns: int) -> int | None:
        """`at_ns` if `client` is there then, else when it returns; None if it never does."""
        here_ns = self._availability.available_from_ns(client, at_ns)
        while here_ns is not None:
            crash = self._crash(client, here_ns)
            if crash is None:
                return here_ns
            ends_ns = crash.span.ends
            here_ns = None if ends_ns is None else self._availability.available_from_ns(client, ends_ns)
        return None

    def leaves_ns(self, client: str, from_ns: int) -> int | None:
        """When `client`, which is there at `from_ns`, next leaves; None if it never does."""
        moments = [crash.span.begins for crash in self._faults.crashes(client) if not crash.span.in_rounds]
        moments = [moment_ns for moment_ns in moments if moment_ns > from_ns]
        change_ns = self._availability.next_change_ns(client, from_ns)
        return min([*moments, *([] if change_ns is None else [change_ns])], default=None)

    def away(self, client: str, end_ns: int) -> list[tuple[int, int]]:
        """From when to when `client` is away before `end_ns`."""
        stretches, now_ns = [], 0
        while now_ns < end_ns:
            back_ns = self.back_ns(client, now_ns)
            if back_ns != now_ns:
                stretches.append((now_ns, end_ns if back_ns is None else min(back_ns, end_ns)))
            leaves_ns = None if back_ns is None else self.leaves_ns(client, back_ns)
            now_ns = end_ns if leaves_ns is None else leaves_ns
        return stretches

    def away_ns(self, client: str, since: Moment) -> int | None:
        """From when on, not before `since`, the server cannot reach `client`, or it has left; None if never."""
        return self.leaves_ns(client, since.ns) if self.can_be_asked(client, since) else since.ns

    def has_forgotten(self, client: str, since: Moment, now: Moment) -> bool:
        """Whether a crash has cost `client` its private state after `since` and up to `now`."""
        for crash in self._faults.crashes(client):
            last, present = (since.round, now.round) if crash.span.in_rounds else (since.ns, now.ns)
            if not crash.keeps_state and last < crash.span.begins <= present:
                return True
        return False

    def _crash(self, client: str, at_ns: int) -> Crash | None:
        """The crash that is dated in seconds and holds at `at_ns`."""
        crashes = self._faults.crashes(client)
        return next((crash for crash in crashes if not crash.span.in_rounds and crash.span.holds(at_ns, 0)), None)
