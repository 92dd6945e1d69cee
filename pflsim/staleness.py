"""How much an answer still counts that is `age` server versions old: s(age), with s(0) = 1.

Source: Xie, Koyejo, Gupta: Asynchronous Federated Optimization (FedAsync), section 5.
"""

from dataclasses import dataclass
from typing import Literal

from pflsim.errors import DescriptionError


@dataclass(frozen=True)
class Staleness:
    """constant: 1. polynomial: (1 + age)^-a. hinge: 1 up to age b, then 1 / (a (age - b) + 1)."""

    kind: Literal["constant", "polynomial", "hinge"]
    a: float
    b: int

    def __post_init__(self) -> None:
        if self.a < 0 or self.b < 0:
            raise DescriptionError("schedule.staleness_a, schedule.staleness_b", (self.a, self.b), "must be at least 0")

    def __call__(self, age: int) -> float:
        """The weight s(age), in (0, 1], never rising with age."""
        if self.kind == "constant":
            return 1.0
        if self.kind == "polynomial":
            return float((1 + age) ** -self.a)
        return 1.0 if age <= self.b else 1 / (self.a * (age - self.b) + 1)
