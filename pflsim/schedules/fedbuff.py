"""FedBuff: answers are buffered, and the server moves by the mean of their changes when the buffer is full.

Nguyen and others: Federated Learning with Buffered Asynchronous Aggregation, Algorithm 1. A round is one full buffer,
which makes one server version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round, Tensors
from pflsim.schedule import WithoutRounds

_LARGEST_BUFFER = 1_000_000


@dataclass(frozen=True)
class FedBuff(WithoutRounds):
    """x <- x + rate / K sum_j s(age_j) (u_j - x_j), where u_j was trained from x_j."""

    buffer: int = 10  # K
    rate: float = 1.0  # eta_g
    unique: bool = False  # who has answered into a buffer gets no work until it is folded in

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what cannot work; returns warnings."""
        if not 1 <= self.buffer <= _LARGEST_BUFFER:
            raise DescriptionError("schedule.buffer", self.buffer, f"must be 1 to {_LARGEST_BUFFER:,}")
        if not self.rate > 0:
            raise DescriptionError("schedule.rate", self.rate, "must be above 0")
        if self.unique and self.buffer > clients:
            expected = f"with unique = true must be 1 to {clients}, the number of clients"
            raise DescriptionError("schedule.buffer", self.buffer, expected)
        if not hasattr(method, "server_buffer"):
            reason = "has no buffered form (server_buffer): use a schedule with rounds"
            raise DescriptionError("schedule.kind", "fedbuff", f"{type(method).__name__} {reason}")
        return super().check(clients, method)

    def arrivals_per_round(self, clients: int) -> int:
        """A full buffer."""
        return self.buffer

    def folds(self, taken: Sequence[Answer]) -> list[Answer]:
        """All of them, when the buffer is full."""
        return sorted(taken, key=lambda answer: answer.client) if len(taken) == self.buffer else []

    def may_work(self, idle: Sequence[int], taken: Sequence[Answer]) -> list[int]:
        """All of them; with `unique` those who are not in the buffer."""
        buffered = {answer.client for answer in taken} if self.unique else set()
        return [client for client in idle if client not in buffered]

    def fold(self, method: Any, all: Tensors, answers: Sequence[Answer], round: Round, version: int) -> Tensors:
        """The server's state after a full buffer."""
        weights = [self.rate * self.weight(answer.age) for answer in answers]
        changed: Tensors = method.server_buffer(all, answers, weights, round)
        return changed
