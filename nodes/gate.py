"""The gate of a process that can be reached over a network: it lets in who has a key of the run, and counts the rest.

It is the process's handler of ZeroMQ's authentication protocol (ZAP, https://rfc.zeromq.org/spec/27), and watches what
the library says of connections (`zmq_socket_monitor`). All of it happens in one thread, which nobody waits for.
"""

import socket as sockets
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import zmq
from zmq.utils import z85

from nodes.curve import HANDSHAKE_MS, Keys, limit, lock
from pflsim.timing.clock import host_seconds

MOST_PENDING = 64
"""So many connections may be in their handshake at a time at one socket; any more are cut off."""
MOST_TOLD = 8
"""So many refusals are told one by one, then those at which their number has doubled."""
EVENTS = (
    zmq.EVENT_LISTENING
    | zmq.EVENT_ACCEPTED
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
)
_EVENT = struct.Struct("=HI")


class Gate:
    """Judges who connects to the sockets of one context."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", tell: Callable[[str], None]) -> None:
        """`tell` is called in the gate's thread with each refusal, in words."""
        self._zap = context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind("inproc://zeromq.zap.01")
        self._stop, self._stopped = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        self._stopped.bind(f"inproc://gate-{id(self)}")
        self._stop.connect(f"inproc://gate-{id(self)}")
        self._known: dict[bytes, bytes] = {}
        """By domain: the public key that may enter."""
        self._doors: dict[zmq.Socket[bytes], Door] = {}
        """By the socket on which the library tells what happens there."""
        self._guarded: list[zmq.Socket[bytes]] = []
        self._tell, self._refused = tell, 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def guard(self, socket: zmq.Socket[bytes], name: str, most_bytes: int, own: Keys | None, entering: bytes) -> None:
        """Before it is bound: only who has the public key `entering` may connect, or anybody, if it has no `own`."""
        limit(socket, most_bytes)
        if own is not None:
            lock(socket, own, name.encode())
            self._known[name.encode()] = z85.decode(entering)
        self._doors[socket.get_monitor_socket(EVENTS)] = Door(name)
        self._guarded.append(socket)

    def open(self) -> None:
        """Begin; from then on no further socket can be guarded."""
        self._thread.start()

    def close(self) -> list[str]:
        """End; what is left to be told."""
        if not self._thread.is_alive():
            return []
        self._stop.send(b"")
        self._thread.join()
        for socket in self._guarded:
            with suppress(zmq.ZMQError):
                socket.disable_monitor()
        for socket in (self._zap, self._stop, self._stopped, *self._doors):
            socket.close(linger=0)
        told = "more connections to the {} never showed a key of this run"
        return [f"{door.strangers} {told.format(door.name)}" for door in self._doors.values() if door.strangers]

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in (self._zap, self._stopped, *self._doors):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            for socket in ready:
                if socket is self._zap:
                    self._judge(socket.recv_multipart())
                elif socket is not self._stopped:
                    self._watch(socket)
            if self._stopped in ready:
                return

    def _judge(self, request: list[bytes]) -> None:
        """Answer one question of the library, which asks for every connection that wants to enter."""
        _, number, domain, address, _, mechanism, *credentials = request
        entering = self._known.get(domain)
        enters = mechanism == b"CURVE" and entering is not None and credentials == [entering]
        status = (b"200", b"OK") if enters else (b"400", b"unknown key")
        self._zap.send_multipart([b"1.0", number, *status, b"", b""])
        if not enters:
            self._refuse(f"{address.decode(errors='replace')} with an unknown key at the {domain.decode()}")

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        head, endpoint = monitor.recv_multipart()
        what, value = _EVENT.unpack(head)
        if who := self._doors[monitor].see(what, value, endpoint, host_seconds()):
            self._refuse(who)

    def _refuse(self, who: str) -> None:
        self._refused += 1
        if self._refused <= MOST_TOLD or self._refused.bit_count() == 1:
            so_far = f" ({self._refused} so far)" if self._refused > MOST_TOLD else ""
            self._tell(f"refused {who}{so_far}")


@dataclass
class Newcomer:
    """A connection that may still be in its handshake."""

    since_s: float
    address: str
    entered: int
    """How many had entered when it came: if no more have when it ends, it never did."""


class Door:
    """The connections to one bound socket: how many came, and how many of them had a key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._endpoint = b""
        self._accepted = self._entered = self._told = self._visits = 0
        """The last ones are connections of the socket to itself, both ends of which are seen to enter."""
        self._denied = 0
        """Those whose key was wrong, which is told already, and whose connection has not ended yet."""
        self._young: dict[int, Newcomer] = {}
        """By descriptor."""
        self._lately: deque[float] = deque()
        """When connections entered, as long as they may be among the young."""

    @property
    def strangers(self) -> int:
        """Connections that never entered and were not told of; the library does not say which they were."""
        return self._accepted - (self._entered - self._visits) - self._told

    def see(self, what: int, value: int, endpoint: bytes, now_s: float) -> str:
        """Take note of an event, and cut off one connection too many; whom that refuses, if it refuses anybody."""
        if what == zmq.EVENT_LISTENING:
            self._endpoint = endpoint
        elif not self._is_mine(endpoint):  # the socket may connect to others, too
            return ""
        elif what == zmq.EVENT_CONNECTED:
            self._visits += 1
        elif what == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._entered += 1
            self._lately.append(now_s)
        elif what == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._denied += 1
            self._told += 1
        elif what == zmq.EVENT_DISCONNECTED:
            return self._see_off(self._young.pop(value, None))
        elif what == zmq.EVENT_ACCEPTED:
            self._accepted += 1
            return self._let_in(value, now_s)
        return ""

    def _is_mine(self, endpoint: bytes) -> bool:
        """One end of a connection that came here; bound at all addresses, one knows it by the port."""
        address, _, port = self._endpoint.rpartition(b":")
        return endpoint == self._endpoint or (address == b"tcp://0.0.0.0" and endpoint.rsplit(b":", 1)[-1] == port)

    def _see_off(self, gone: Newcomer | None) -> str:
        if self._denied:
            self._denied -= 1
            return ""
        if gone is None or gone.entered != self._entered:
            return ""
        self._told += 1
        return f"{gone.address} without a key at the {self.name}"

    def _let_in(self, descriptor: int, now_s: float) -> str:
        since_s = now_s - HANDSHAKE_MS / 1000
        self._young = {one: newcomer for one, newcomer in self._young.items() if newcomer.since_s > since_s}
        while self._lately and self._lately[0] <= since_s:
            self._lately.popleft()
        try:
            connection = sockets.socket(fileno=sockets.dup(descriptor))
        except OSError:  # it has gone already
            self._young[descriptor] = Newcomer(now_s, "somebody", self._entered)
            return ""
        with connection, suppress(OSError):
            address = str(connection.getpeername()[0])
            self._young[descriptor] = Newcomer(now_s, address, self._entered)
            if len(self._young) - len(self._lately) > MOST_PENDING:
                connection.shutdown(sockets.SHUT_RDWR)
        return ""
