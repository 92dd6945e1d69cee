"""Nobody waits: after its own work a peer learns from whatever its neighbours have sent last, however old it is."""

from dataclasses import dataclass

from pflsim.schedule import WithoutServer


@dataclass(frozen=True)
class Asynchronous(WithoutServer):
    """Every peer goes at its own pace, with the newest model of each neighbour."""

    @property
    def gives_up(self) -> bool:
        return True
