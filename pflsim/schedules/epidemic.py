"""Epidemic rounds: each peer sends its model to a few neighbours, drawn anew each round, and awaits those that drew it.

De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma: Epidemic Learning: Boosting Decentralized Learning with
Randomized Communication. What came is mixed in evenly with the own model.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pflsim.errors import DescriptionError
from pflsim.schedule import WithoutServer


@dataclass(frozen=True)
class Epidemic(WithoutServer):
    """Each model goes to `receivers` random neighbours; on the full graph these may be anybody."""

    receivers: int = 3

    mixes_evenly: ClassVar[bool] = True

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what cannot be; returns warnings."""
        if self.receivers < 1:
            raise DescriptionError("schedule.receivers", self.receivers, "must be at least 1")
        return []
