"""A cable between machines: a relay of TCP connections that a test can cut, with or without ending the connections."""

import socket as sockets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

PIECE_BYTES = 1 << 16
LOOK_S = 0.05


class Relay:
    """Passes on what comes at ports of its own, until it is closed; whoever wants one more port asks at `asked_at`."""

    def __init__(self) -> None:
        self._asked = sockets.create_server(("127.0.0.1", 0))
        self.asked_at = int(self._asked.getsockname()[1])
        self._listeners = [self._asked]
        self._threads: list[threading.Thread] = []
        self._connections: list[tuple[sockets.socket, int]] = []
        self._is_whole = threading.Event()
        self._is_whole.set()
        self.passed_on = 0
        self._begin(self._answer)

    def port_to(self, port: int) -> int:
        """A new port of the relay for what is to go on to `port`."""
        listener = sockets.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        self._begin(self._accept, listener, port)
        return int(listener.getsockname()[1])

    def cut(self, for_s: float) -> None:
        """Nothing passes in either direction for so long, and then all of it."""
        self._is_whole.clear()
        time.sleep(for_s)
        self._is_whole.set()

    def end_connections(self, port: int | None = None) -> None:
        """Close all connections that there are, or those to `port`; new ones can be made."""
        for one, target in self._connections:
            if port in (None, target):
                with suppress(OSError):
                    one.shutdown(sockets.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        self._is_whole.set()
        for one in self._listeners:
            with suppress(OSError):
                one.shutdown(sockets.SHUT_RDWR)
            one.close()
        self.end_connections()
        for thread in list(self._threads):
            thread.join()

    def _begin(self, what: Callable[..., None], *arguments: object) -> threading.Thread:
        self._threads.append(threading.Thread(target=what, args=arguments))
        self._threads[-1].start()
        return self._threads[-1]

    def _answer(self) -> None:
        with suppress(OSError):
            while True:
                asking, _ = self._asked.accept()
                with asking:
                    asking.sendall(f"{self.port_to(int(asking.makefile().readline()))}\n".encode())

    def _accept(self, listener: sockets.socket, port: int) -> None:
        with suppress(OSError):
            while True:
                one, _ = listener.accept()
                try:
                    other = sockets.create_connection(("127.0.0.1", port))
                except OSError:  # the run is over
                    one.close()
                    continue
                self._connections += [(one, port), (other, port)]
                self._begin(self._link, one, other)

    def _link(self, one: sockets.socket, other: sockets.socket) -> None:
        with one, other:
            back = self._begin(self._pass, other, one)
            self._pass(one, other)
            back.join()

    def _pass(self, source: sockets.socket, target: sockets.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                self._is_whole.wait()
                target.sendall(piece)
                self.passed_on += len(piece)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(sockets.SHUT_RDWR)
