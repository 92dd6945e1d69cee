"""`pflsim host` behind a relay: every endpoint that it is told is one of a relay that passes on to it."""

import os
import socket as sockets

import launch.joining
from launch import cli


def through_the_relay(endpoint: str, address: str) -> str:
    """Where the relay of the test takes what is for `endpoint`."""
    with sockets.create_connection(("127.0.0.1", int(os.environ["RELAY"]))) as asking:
        asking.sendall(endpoint.rsplit(":", 1)[1].encode() + b"\n")
        return f"tcp://127.0.0.1:{asking.makefile().readline().strip()}"


launch.joining.seen_from = through_the_relay

if __name__ == "__main__":
    cli.main()
