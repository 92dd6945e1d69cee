"""Stands between the clients and the server of a real run, and does to their messages what a test wants."""

import threading
from collections.abc import Callable
from typing import Any

import msgpack
import zmq

from tests.launching import WatchedRun

Mischief = Callable[[dict[str, Any], list[bytes]], list[list[bytes]]]
"""What becomes of a message: from its header's fields and its frames to the messages that go on instead of it."""

FIELDS = ("protocol", "run", "kind", "sender", "to", "sequence", "round")


class Proxy(threading.Thread):
    """Has one connection to the server per client, as the server expects it."""

    def __init__(self, server: str, clients: str, mischief: Mischief) -> None:
        super().__init__()
        self._server, self._mischief = server, mischief
        self._context = zmq.Context()
        self._clients = self._context.socket(zmq.ROUTER)
        self._clients.bind(clients)
        self._behind: dict[bytes, zmq.Socket[bytes]] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        """Pass on until it is stopped."""
        while not self._stopped.is_set():
            readable, _, _ = zmq.select([self._clients, *self._behind.values()], [], [], 0.05)
            if self._clients in readable:
                client, *frames = self._clients.recv_multipart()
                for changed in self._changed(frames):
                    self._to_server(client).send_multipart(changed)
            for client, socket in list(self._behind.items()):
                if socket in readable:
                    for changed in self._changed(socket.recv_multipart()):
                        self._clients.send_multipart([client, *changed])
        self._context.destroy(linger=0)

    def stop(self) -> None:
        """End it; nothing is passed on any more."""
        self._stopped.set()
        self.join()

    def _changed(self, frames: list[bytes]) -> list[list[bytes]]:
        fields = dict(zip(FIELDS, msgpack.unpackb(frames[0]), strict=False))
        return self._mischief(fields, frames)

    def _to_server(self, client: bytes) -> "zmq.Socket[bytes]":
        if client not in self._behind:
            socket = self._behind[client] = self._context.socket(zmq.DEALER)
            socket.connect(self._server)
        return self._behind[client]


class ProxiedRun(WatchedRun):
    """A run whose clients find a proxy where they look for the server."""

    mischief: Mischief
    _proxy: Proxy | None = None

    def start_clients(self, server: str) -> None:
        """Tell them the proxy's endpoint."""
        clients = f"ipc://{self._private.path}/proxy"
        self._proxy = Proxy(server, clients, type(self).mischief)
        self._proxy.start()
        super().start_clients(clients)

    def _end(self, status: str) -> None:
        super()._end(status)
        if self._proxy is not None:
            self._proxy.stop()


def with_proxy(mischief: Mischief) -> type[ProxiedRun]:
    """The kind of run whose proxy does this."""
    return type("Proxied", (ProxiedRun,), {"mischief": staticmethod(mischief)})
