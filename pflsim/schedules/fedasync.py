"""FedAsync: every answer is mixed into the server's model when it arrives, the less the older it is.

Xie, Koyejo, Gupta: Asynchronous Federated Optimization, Algorithm 1. `run.rounds` counts N arrivals as one round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round, Tensors
from pflsim.staleness import Staleness

_ALPHA = 0.6


@dataclass(frozen=True)
class FedAsync:
    """x <- (1 - alpha s(age)) x + alpha s(age) u on each arrival; `concurrency` clients are at work at any time."""

    concurrency: int
    alpha: float | None = None  # the mixing weight of a fresh answer; None: 0.6
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    staleness_a: float = 0.5
    staleness_b: int = 4
    timeout_s: float | None = None  # after how long work that is not answered is cancelled
    max_staleness: int | None = None  # what is older is discarded

    promises = True
    mend = "the client would be held busy without end: set schedule.timeout_s"

    @property
    def gives_up(self) -> bool:
        """Whether work that is never answered is given up."""
        return self.timeout_s is not None

    @property
    def timeout_ns(self) -> int | None:
        """After how long it is, in simulated nanoseconds."""
        return None if self.timeout_s is None else ceil(self.timeout_s * 1e9)

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what cannot work; returns warnings."""
        if self.concurrency < 1:
            raise DescriptionError("schedule.concurrency", self.concurrency, "must be at least 1")
        if self.max_staleness is not None and self.max_staleness < 0:
            raise DescriptionError("schedule.max_staleness", self.max_staleness, "must be at least 0")
        if self.alpha is not None and not 0 < self.alpha <= 1:
            raise DescriptionError("schedule.alpha", self.alpha, "must be above 0 and at most 1")
        if self.alpha is not None and not getattr(method, "mixes", True):
            raise DescriptionError("schedule.alpha", self.alpha, f"{type(method).__name__} mixes nothing: leave it out")
        if not hasattr(method, "server_arrival"):
            reason = "has no asynchronous form (server_arrival): use a schedule with rounds"
            raise DescriptionError("schedule.kind", "fedasync", f"{type(method).__name__} {reason}")
        if self.timeout_s is not None and not 0 < self.timeout_s < 1e9:
            raise DescriptionError("schedule.timeout_s", self.timeout_s, "must be above 0, and finite")
        self._weight(0)
        if self.concurrency > clients:
            return [f"schedule.concurrency = {self.concurrency}: there are {clients} clients, all of whom work"]
        return []

    def size(self, clients: int) -> int:
        """How many clients are at work at a time."""
        return min(self.concurrency, clients)

    def arrivals_per_round(self, clients: int) -> int:
        """How many arrivals count as one round."""
        return clients

    def takes(self, age: int) -> bool:
        """Whether an answer of this age is taken at all."""
        return self.max_staleness is None or age <= self.max_staleness

    def folds(self, taken: Sequence[Answer]) -> list[Answer]:
        """What of the round's arrivals so far is folded in now: the last one."""
        return [taken[-1]]

    def fold(self, method: Any, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        """The server's state after an arrival."""
        (answer,) = answers
        s = self._weight(answer.age)
        alpha = _ALPHA if self.alpha is None else self.alpha
        changed: Tensors = method.server_arrival(all, replace(answer, weight=s), alpha * s, round)
        return changed

    def _weight(self, age: int) -> float:
        return Staleness(self.staleness, self.staleness_a, self.staleness_b)(age)
