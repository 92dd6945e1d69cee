"""Synchronous rounds: a cohort is drawn, everybody in it works, and the round ends when all of them have answered."""

from dataclasses import dataclass
from math import floor
from typing import Any, Literal

import numpy as np

from pflsim.errors import DescriptionError


@dataclass(frozen=True)
class Sync:
    """Who works in a round: everybody, or `cohort` clients (or a `fraction` of them, rounded down) drawn anew."""

    sampler: Literal["all", "uniform", "by-samples"] = "all"
    cohort: int | None = None
    fraction: float | None = None

    promises = False

    def check(self, clients: int, method: Any) -> None:
        """Raises DescriptionError for what has no meaning with that many clients."""
        if self.cohort is not None and self.fraction is not None:
            given = (self.cohort, self.fraction)
            raise DescriptionError("schedule.cohort, schedule.fraction", given, "give one of the two")
        if self.cohort is not None and self.cohort < 1:
            raise DescriptionError("schedule.cohort", self.cohort, "must be at least 1")
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise DescriptionError("schedule.fraction", self.fraction, "must be above 0 and at most 1")
        sampled = self.cohort is not None or self.fraction is not None
        if sampled == (self.sampler == "all"):
            expected = '"uniform" and "by-samples" need a cohort or a fraction, "all" takes neither'
            raise DescriptionError("schedule.sampler", self.sampler, expected)

    def size(self, clients: int) -> int:
        """How many clients work in a round; at least one."""
        if self.cohort is not None:
            return min(self.cohort, clients)
        return clients if self.fraction is None else max(1, floor(self.fraction * clients))

    def drawn(self, sizes: np.ndarray, rng: np.random.Generator) -> tuple[int, ...]:
        """The ids of this round's cohort, ascending; `sizes` [N] are the clients' training samples."""
        clients = len(sizes)
        if self.sampler == "all":
            return tuple(range(clients))
        chances = sizes / sizes.sum() if self.sampler == "by-samples" else None
        drawn = rng.choice(clients, self.size(clients), replace=False, p=chances)
        return tuple(sorted(int(client) for client in drawn))
