"""A test bed: machines of their own on this one, as network namespaces that are joined by a network of our making.

Each machine has one interface and one address. What joins them is either a switch of the kernel (veth pairs and a
bridge), whose lines have rates (`tc tbf`), or a relay in user space (`launch.fidelity.relay`), which delays, loses and
reorders packets. Needs root, `ip` and `tc`; `why_not` says what is missing.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from launch.fidelity.counted import UNSEEN_BYTES
from launch.fidelity.relay import Disturbance, Relay

NETWORK = "10.83.0"
LEAST_BURST_BYTES = 3_200
CONGESTION = "reno"  # every kernel has it; others, such as bbr, hold packets back to space them out


@dataclass(frozen=True)
class Line:
    """The rates of a machine's line in Mbit/s, as the machine sees it."""

    uplink_mbps: float
    downlink_mbps: float


def why_not() -> str:
    """Why there can be no test bed here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    name = f"pfl{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode:
        return f"no network namespace can be made: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


class Bed:
    """Machines named `lines`, joined by a switch, or by a relay if there is a `disturbance`; a context manager."""

    def __init__(self, lines: Mapping[str, Line], disturbance: Disturbance | None = None) -> None:
        self._lines, self._disturbance = dict(lines), disturbance
        self._prefix = f"pfl{os.getpid()}"
        self._names = {machine: f"{self._prefix}-{number}" for number, machine in enumerate(lines)}
        self.addresses = {machine: f"{NETWORK}.{number + 1}" for number, machine in enumerate(lines)}
        self.relay: Relay | None = None
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "Bed":
        try:
            for machine in self._lines:
                _ip("netns", "add", self._names[machine])
                self._inside(machine, "ip", "link", "set", "lo", "up")
                self._inside(machine, "sh", "-c", f"echo {CONGESTION} > /proc/sys/net/ipv4/tcp_congestion_control")
            if self._disturbance is None:
                self._join_by_switch()
            else:
                self._join_by_relay(self._disturbance)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
        if self.relay is not None:
            self.relay.close()
        for name in [*self._names.values(), self._switch]:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)

    def start(self, machine: str, command: Sequence[str], **how: Any) -> "subprocess.Popen[str]":
        """Start a program on a machine; it is killed with the bed at the latest."""
        where = ["ip", "netns", "exec", self._names[machine], *command]
        process = subprocess.Popen(where, text=True, **how)
        self._started.append(process)
        return process

    def plug(self, machine: str, *, is_in: bool) -> None:
        """Pull the machine's cable out of the switch, or put it in again."""
        _ip("-netns", self._switch, "link", "set", self._names[machine], "up" if is_in else "down")

    def counted_bytes(self, machine: str) -> tuple[int, int]:
        """What the kernel has counted on the machine's interface: sent, received."""
        counted = [
            self._inside(machine, "cat", f"/sys/class/net/eth0/statistics/{which}_bytes") for which in ("tx", "rx")
        ]
        return int(counted[0]), int(counted[1])

    @property
    def _switch(self) -> str:
        return f"{self._prefix}-switch"

    def _join_by_switch(self) -> None:
        switch = self._switch
        _ip("netns", "add", switch)
        _ip("-netns", switch, "link", "add", "switch", "type", "bridge")
        _ip("-netns", switch, "link", "set", "switch", "up")
        for machine, line in self._lines.items():
            name = self._names[machine]
            _ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", name, "netns", switch)
            _ip("-netns", switch, "link", "set", name, "master", "switch", "up", "gso_max_segs", "1")
            _limit(switch, name, line.downlink_mbps)
            self._address(machine, "gso_max_segs", "1")
            _limit(name, "eth0", line.uplink_mbps)

    def _join_by_relay(self, disturbance: Disturbance) -> None:
        self.relay = Relay(disturbance)
        for machine, address in self.addresses.items():
            name = self._names[machine]
            self.relay.open(name, address)
            _ip("link", "set", name, "netns", name)
            _ip("-netns", name, "link", "set", name, "name", "eth0")
            self._address(machine)
            _limit(name, "eth0", self._lines[machine].uplink_mbps)
        self.relay.start()

    def _address(self, machine: str, *more: str) -> None:
        _ip("-netns", self._names[machine], "address", "add", f"{self.addresses[machine]}/24", "dev", "eth0")
        _ip("-netns", self._names[machine], "link", "set", "eth0", "up", *more)

    def _inside(self, machine: str, *command: str) -> str:
        return _told(["ip", "netns", "exec", self._names[machine], *command])


def _limit(namespace: str, interface: str, mbps: float) -> None:
    burst_bytes = max(LEAST_BURST_BYTES, int(mbps * 1e6 / 8 / 1000))  # a millisecond's worth
    framing = ["stab", "overhead", str(UNSEEN_BYTES), "linklayer", "ethernet"]
    rate = ["rate", f"{mbps}mbit", "burst", str(burst_bytes), "limit", "16mb"]
    _told(["tc", "-netns", namespace, "qdisc", "add", "dev", interface, "root", *framing, "tbf", *rate])


def _ip(*arguments: str) -> str:
    return _told(["ip", *arguments])


def _told(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
