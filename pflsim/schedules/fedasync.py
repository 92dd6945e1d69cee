"""FedAsync: every answer is mixed into the server's model when it arrives, the less the older it is.

Xie, Koyejo, Gupta: Asynchronous Federated Optimization, Algorithm 1. `run.rounds` counts N arrivals as one round.

The paper's clients add (rho/2) ||w - x||^2 to their loss, x being the model that they were sent. There is no rho here:
what a client minimises belongs to its method, and FedProx with mu = rho (the paper has 0.005) minimises just that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round, Tensors
from pflsim.schedule import WithoutRounds

_ALPHA = 0.6
_LARGEST_DECAY = 1e6


@dataclass(frozen=True)
class FedAsync(WithoutRounds):
    """x <- (1 - alpha s(age)) x + alpha s(age) u on each arrival; `concurrency` clients are at work at any time.

    With a decay c, version v of the model takes in its next answer with alpha / (1 + c v) instead of alpha.
    """

    alpha: float | None = None  # the mixing weight of a fresh answer; None: 0.6
    alpha_decay: float = 0.0  # c

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what cannot work; returns warnings."""
        if self.alpha is not None and not 0 < self.alpha <= 1:
            raise DescriptionError("schedule.alpha", self.alpha, "must be above 0 and at most 1")
        if not 0 <= self.alpha_decay <= _LARGEST_DECAY:
            raise DescriptionError("schedule.alpha_decay", self.alpha_decay, f"must be from 0 to {_LARGEST_DECAY:g}")
        for name, given in (("alpha", self.alpha), ("alpha_decay", self.alpha_decay or None)):
            if given is not None and not getattr(method, "mixes", True):
                raise DescriptionError(
                    f"schedule.{name}", given, f"{type(method).__name__} mixes nothing: leave it out"
                )
        if not hasattr(method, "server_arrival"):
            others = "fedbuff or a schedule" if hasattr(method, "server_buffer") else "a schedule"
            reason = f"has no asynchronous form (server_arrival): use {others} with rounds"
            raise DescriptionError("schedule.kind", "fedasync", f"{type(method).__name__} {reason}")
        return super().check(clients, method)

    def arrivals_per_round(self, clients: int) -> int:
        """As many as there are clients."""
        return clients

    def folds(self, taken: Sequence[Answer]) -> list[Answer]:
        """The last one."""
        return [taken[-1]]

    def alpha_of(self, version: int) -> float:
        """The mixing weight of a fresh answer when the model has changed so many times."""
        return (_ALPHA if self.alpha is None else self.alpha) / (1 + self.alpha_decay * version)

    def fold(self, method: Any, all: Tensors, answers: Sequence[Answer], round: Round, version: int) -> Tensors:
        """The server's state after an arrival."""
        (answer,) = answers
        s, alpha = self.weight(answer.age), self.alpha_of(version)
        changed: Tensors = method.server_arrival(all, replace(answer, weight=s), alpha * s, round)
        return changed
