"""FedBuff: answers are buffered, and the server moves by the mean of their changes when the buffer is full.

Nguyen and others: Federated Learning with Buffered Asynchronous Aggregation, Algorithm 1. A round is one full buffer,
which makes one server version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round, Tensors
from pflsim.staleness import Staleness


@dataclass(frozen=True)
class FedBuff:
    """x <- x + rate / K sum_j s(age_j) (u_j - x_j), where u_j was trained from x_j."""

    concurrency: int
    buffer: int = 10  # K
    rate: float = 1.0  # eta_g
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    staleness_a: float = 0.5
    staleness_b: int = 4
    timeout_s: float | None = None  # after how long work that is not answered is cancelled
    max_staleness: int | None = None

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
        if self.buffer < 1:
            raise DescriptionError("schedule.buffer", self.buffer, "must be at least 1")
        if not self.rate > 0:
            raise DescriptionError("schedule.rate", self.rate, "must be above 0")
        if not hasattr(method, "server_buffer"):
            reason = "has no buffered form (server_buffer): use a schedule with rounds"
            raise DescriptionError("schedule.kind", "fedbuff", f"{type(method).__name__} {reason}")
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
        return self.buffer

    def takes(self, age: int) -> bool:
        """Whether an answer of this age is taken at all."""
        return self.max_staleness is None or age <= self.max_staleness

    def folds(self, taken: Sequence[Answer]) -> list[Answer]:
        """What of the round's arrivals so far is folded in now: all, when the buffer is full."""
        return sorted(taken, key=lambda answer: answer.client) if len(taken) == self.buffer else []

    def fold(self, method: Any, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        """The server's state after a full buffer."""
        weights = [self.rate * self._weight(answer.age) for answer in answers]
        changed: Tensors = method.server_buffer(all, answers, weights, round)
        return changed

    def _weight(self, age: int) -> float:
        return Staleness(self.staleness, self.staleness_a, self.staleness_b)(age)
