"""Nobody waits: after its own work a peer learns from whatever its neighbours have sent last, however old it is."""

from dataclasses import dataclass
from typing import ClassVar

from pflsim.schedule import WithoutServer


@dataclass(frozen=True)
class Asynchronous(WithoutServer):
    """Every peer goes at its own pace, with the newest model of each neighbour."""

    tells_everybody: ClassVar[bool] = True

    @property
    def gives_up(self) -> bool:
        return True
