"""Runs a description over tcp:// in a network of its own, and prints what the kernel counted there, as JSON.

Started as `unshare --net python -m tests.counted FOLDER`: in that network there is nothing but this run.
"""

import fcntl
import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any

from tests.launching import description, run_here

IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS = 1, 0x8913, 0x8914
IP_BYTES, TCP_BYTES = 20, 32
"""Of the headers of each segment: TCP's have the time stamps' twelve."""
SYN_BYTES = 8
"""By which the header of a segment that opens a connection is longer."""


def bring_up(interface: str = "lo") -> None:
    """What `ip link set lo up` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", interface.encode(), 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", interface.encode(), flags | IFF_UP))


def counters(path: str) -> dict[str, dict[str, int]]:
    """The counters of this network by protocol: the kernel writes a line of names and one of numbers for each."""
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    return {
        names[0].rstrip(":"): dict(zip(names[1:], map(int, numbers[1:]), strict=True))
        for names, numbers in zip(lines[::2], lines[1::2], strict=True)
    }


def stream_bytes() -> int:
    """What TCP has carried in this network, without the headers of its segments."""
    ip, tcp = counters("/proc/self/net/netstat")["IpExt"], counters("/proc/self/net/snmp")["Tcp"]
    assert tcp["InErrs"] == 0
    opened = tcp["ActiveOpens"] + tcp["PassiveOpens"]
    return ip["InOctets"] - tcp["InSegs"] * (IP_BYTES + TCP_BYTES) - opened * SYN_BYTES


def main(folder: Path) -> None:
    """Run, and print what was counted."""
    bring_up()
    settings: dict[str, Any] = {"run__clients": 6, "run__rounds": 8, "run__transport": "tcp"}
    run_here(description(**settings, data__features=3000), folder)
    tcp = counters("/proc/self/net/snmp")["Tcp"]
    told = {"stream_bytes": stream_bytes(), "connections": tcp["ActiveOpens"], "resent_segments": tcp["RetransSegs"]}
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
