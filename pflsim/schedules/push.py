"""Push gossip: after its own work a peer sends its model to a few neighbours, drawn anew, and waits for nobody.

What has come meanwhile is mixed in evenly with the own model.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pflsim.errors import DescriptionError
from pflsim.schedule import WithoutServer


@dataclass(frozen=True)
class Push(WithoutServer):
    """Each model goes to `receivers` random neighbours."""

    receivers: int = 1

    mixes_evenly: ClassVar[bool] = True

    @property
    def gives_up(self) -> bool:
        return True

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what cannot be; returns warnings."""
        if self.receivers < 1:
            raise DescriptionError("schedule.receivers", self.receivers, "must be at least 1")
        return []
