"""How the actors of a process tell facts to the recorder: in batches, over a socket of their own."""

from typing import Any

import msgpack
import zmq

from nodes.curve import Keys, show
from pflsim.log import FactLog
from pflsim.timing.clock import host_seconds

BATCH = 512
EVERY_S = 0.25


class FactSender:
    """Collects facts and sends them together; one per process.

    `process` is its name, or what the recorder knows it by where others could give that name.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        process: str | bytes,
        log: FactLog | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._log = log
        self._socket = context.socket(zmq.PUSH)
        self._socket.set_hwm(0)
        if keys is not None:
            show(self._socket, keys, keys.public)
        self._socket.connect(endpoint)
        self._process = process
        self._facts: list[tuple[Any, ...]] = []
        self._sent_s = host_seconds()

    def tell(self, *fact: Any) -> None:
        """Keep one fact, and send the batch when it is full; an event does not wait for that."""
        self._facts.append(fact)
        if self._log is not None:
            self._log.note(fact)
        if len(self._facts) >= BATCH:
            self.flush()
        elif fact[0] == "events":
            self.flush_if_due()

    def flush_if_due(self) -> None:
        """Send what there is when the last batch is some time ago: at an event, and before this process sleeps."""
        if self._facts and host_seconds() - self._sent_s > EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        if self._facts:
            self._socket.send(msgpack.packb((self._process, self._facts)))
            self._facts = []
        self._sent_s = host_seconds()

    def close(self) -> None:
        """Send the rest and say goodbye, after which nothing more comes from this process."""
        self.flush()
        self._socket.send(msgpack.packb((self._process, None)))
        self._socket.close()
