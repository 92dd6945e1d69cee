"""Who has left a run that goes on without them: what the launcher says of that, and what the server finds out itself.

The launcher sees processes end and machines fall silent. It says so over a socket in the private folder of the run,
which no other user and no other machine can reach; nobody who takes part in the run can say it of another. Among peers
it is the coordinator that listens, and tells the others.
"""

import msgpack
import zmq

from pflsim.timing.clock import host_seconds

UNREACHED_S = 2.0
"""Whose connection has ended is lost after that time, if the launcher has not said why by then."""


class Losses:
    """What the server of a run knows of who is lost."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", mail: "zmq.Socket[bytes]", endpoint: str) -> None:
        """`mail` is the socket of the actors' messages; the launcher speaks at `endpoint`."""
        self._word = context.socket(zmq.PULL)
        self._word.linger = 0
        self._word.bind(endpoint)
        self._mail = mail
        self._poller = zmq.Poller()
        self._poller.register(self._word, zmq.POLLIN)
        self._poller.register(mail, zmq.POLLIN)
        self.lost: set[str] = set()
        self._unreached_s: dict[str, float] = {}
        """By actor: since when it cannot be reached."""

    def await_mail(self, wait_ms: int) -> tuple[bool, list[tuple[str, str]]]:
        """Whether a message comes within that time, and who has been lost meanwhile, with the reason."""
        ready, news = dict(self._poller.poll(wait_ms)), []
        while self._word.poll(0):
            actors, reason = msgpack.unpackb(self._word.recv())
            news += [(actor, reason) for actor in actors if actor not in self.lost]
        return self._mail in ready, news

    def cannot_reach(self, actor: str) -> None:
        """The connection to `actor` has ended, maybe as its process has."""
        self._unreached_s.setdefault(actor, host_seconds())

    def unreached(self) -> list[str]:
        """Who is lost as it could not be reached for some time, whatever its process does."""
        now_s = host_seconds()
        since = self._unreached_s.items()
        return [actor for actor, since_s in since if actor not in self.lost and now_s - since_s > UNREACHED_S]
