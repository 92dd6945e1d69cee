"""Rounds among neighbours: a peer waits for the models of its neighbours of the same round, or until a deadline."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pflsim.errors import DescriptionError
from pflsim.schedule import WithoutServer, require_share


@dataclass(frozen=True)
class Neighbours(WithoutServer):
    """In step with the neighbours; what `sync` is where there is no server."""

    deadline_s: float | None = None  # so long a peer waits after its own work; then the newest will do
    active: float = 1.0  # the share of peers that take part in a round, each drawn by itself
    only_active: bool = True  # learn only from those that take part, which keeps the mean; else also from older models

    tells_everybody: ClassVar[bool] = True

    @property
    def gives_up(self) -> bool:
        return self.deadline_s is not None

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what cannot be; returns warnings."""
        require_share("schedule.active", self.active)
        if self.deadline_s is not None and not 0 < self.deadline_s < 1e9:
            raise DescriptionError("schedule.deadline_s", self.deadline_s, "must be above 0, and finite")
        return []
