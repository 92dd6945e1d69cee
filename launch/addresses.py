"""At which addresses a run's launcher listens, and where other machines may find it."""

import socket as sockets
from contextlib import suppress

import psutil
import zmq

from launch.control import ANY
from pflsim.errors import DescriptionError

ANY_PORT = f"tcp://{ANY}:0"
"""All addresses of this machine, at a port that the system chooses."""


def parsed(listen: str, key: str = "--listen") -> tuple[str, int]:
    """The address and port to listen at. Raises DescriptionError, which names `key`."""
    expected = "must be tcp://ADDRESS:PORT, such as tcp://0.0.0.0:5555 (all addresses of this machine)"
    address, _, port = listen.removeprefix("tcp://").rpartition(":")
    try:
        sockets.inet_aton(address)
        if not listen.startswith("tcp://") or not 0 <= int(port) < 1 << 16:
            raise ValueError
    except (OSError, ValueError) as problem:
        raise DescriptionError(key, listen, expected) from problem
    return address, int(port)


def bind(socket: "zmq.Socket[bytes]", listen: str, key: str = "--listen") -> None:
    """Listen there. Raises DescriptionError, which names `key`."""
    try:
        socket.bind(listen)
    except zmq.ZMQError as problem:
        raise DescriptionError(key, listen, f"cannot be listened at: {problem.strerror}") from problem


def found_at(endpoint: str) -> tuple[str, ...]:
    """Where other machines may find what is bound at an endpoint, as host:port, the likeliest first."""
    address, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return tuple(f"{one}:{port}" for one in (_all_addresses() if address == ANY else [address]))


def reached_at(address: str) -> str:
    """One address at which what is bound at `address` can be reached."""
    return _all_addresses()[0] if address == ANY else address


def _all_addresses() -> list[str]:
    """Where other machines may find this one; where there is no network, this machine itself can."""
    first = ""
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as way, suppress(OSError):
        way.connect(("192.0.2.1", 9))  # sends nothing; the address towards everybody else is the likeliest
        first = way.getsockname()[0]
    found = [
        one.address
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family == sockets.AF_INET and not one.address.startswith("127.")
    ]
    return sorted(set(found), key=lambda one: (one != first, one)) or ["127.0.0.1"]
