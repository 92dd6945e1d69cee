"""Synchronous rounds: a cohort is drawn, everybody in it works, and the round ends when all of them have answered."""

from dataclasses import dataclass
from math import floor
from typing import Any

from pflsim.errors import DescriptionError
from pflsim.sampling import Setting, load, shortfall, takes_all


@dataclass(frozen=True)
class Sync:
    """Who works in a round: everybody, or `cohort` clients (or a `fraction` of them, rounded down) drawn anew."""

    sampling: Setting = "all"
    cohort: int | None = None
    fraction: float | None = None

    promises = False
    gives_up = False
    mend = 'a round would wait without end: use a deadline with late = "cancel", or FedAsync or FedBuff with timeout_s'

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what has no meaning with that many clients; returns warnings."""
        if self.cohort is not None and self.fraction is not None:
            given = (self.cohort, self.fraction)
            raise DescriptionError("schedule.cohort, schedule.fraction", given, "give one of the two")
        if self.cohort is not None and self.cohort < 1:
            raise DescriptionError("schedule.cohort", self.cohort, "must be at least 1")
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise DescriptionError("schedule.fraction", self.fraction, "must be above 0 and at most 1")
        chosen = load(self.sampling)
        sampled = self.cohort is not None or self.fraction is not None
        if sampled == takes_all(self.sampling):
            expected = 'needs a cohort or a fraction, all but "all", which takes neither'
            raise DescriptionError("schedule.sampling", self.sampling, expected)
        chosen.check(clients, self.size(clients))
        return shortfall(chosen, clients, self.size(clients))

    def size(self, clients: int) -> int:
        """How many clients work in a round; at least one."""
        if self.cohort is not None:
            return min(self.cohort, clients)
        return clients if self.fraction is None else max(1, floor(self.fraction * clients))
