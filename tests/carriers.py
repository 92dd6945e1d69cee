"""A carrier for the tests of a port and of a mailroom: what is posted stays where the test can take it."""

from collections.abc import Sequence

from pflsim.messages.port import Port
from pflsim.messages.wire import Frame


class Alone:
    """A carrier for one port, which must never have to wait."""

    def __init__(self) -> None:
        self.posted: list[list[bytes]] = []

    def post(self, to: str, frames: Sequence[Frame]) -> None:
        self.posted.append([bytes(frame) for frame in frames])

    def wait_for_mail(self, port: Port) -> None:
        if not port.may_go_on():
            raise AssertionError(f"{port.name} would wait for {port.waits_for()}")

    def wait_until(self, port: Port, until_ns: int) -> None:
        pass


def last_posted(port: Port) -> list[bytes]:
    """The frames of what an `Alone` port sent last."""
    port.finish()
    carrier = port._carrier
    assert isinstance(carrier, Alone)
    return carrier.posted[-1]
