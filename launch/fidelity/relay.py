"""A relay in user space: it takes packets from one machine of the test bed and hands them to another, later or never.

It stands in for the kernel's `netem`, which not every kernel has. Each machine has a TUN interface, whose other end is
a file here: what is read from it is an IPv4 packet that the machine sent.
"""

import fcntl
import heapq
import os
import selectors
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from random import Random

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_MOST_BYTES = 1 << 16
_TO = slice(16, 20)  # the destination in an IPv4 header


@dataclass(frozen=True)
class Disturbance:
    """What befalls each packet by itself."""

    latency_s: float = 0.0
    """One way."""
    loss: float = 0.0
    """The probability that it is lost."""
    reordered: float = 0.0
    """The probability that it comes `behind_s` later than it would, behind others."""
    behind_s: float = 0.005


class Relay:
    """Carries packets between the interfaces that were opened, in a thread of its own; counts what befell them."""

    def __init__(self, disturbance: Disturbance, seed: int = 0) -> None:
        self._disturbance, self._random = disturbance, Random(seed)
        self._files: dict[bytes, int] = {}
        """By address."""
        self._late: list[tuple[float, int, int, bytes]] = []
        """When it is to come, its number, for whom, and the packet."""
        self.lost = self.held_back = self._number = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="relay", daemon=True)

    def open(self, interface: str, address: str) -> None:
        """Make an interface; it may be moved to another namespace, and stays joined to this relay."""
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self._files[bytes(map(int, address.split(".")))] = file
        fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH", interface.encode(), _IFF_TUN | _IFF_NO_PI))

    def start(self) -> None:
        """Carry from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop; the interfaces vanish."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        for file in self._files.values():
            os.close(file)

    def _carry(self) -> None:
        with selectors.DefaultSelector() as selector:
            for file in self._files.values():
                selector.register(file, selectors.EVENT_READ)
            while not self._ends.is_set():
                wait_s = max(0.0, self._late[0][0] - time.monotonic()) if self._late else 0.1
                for key, _ in selector.select(min(wait_s, 0.1)):
                    self._take(key.fd)
                self._hand_on()

    def _take(self, file: int) -> None:
        now_s, rules = time.monotonic(), self._disturbance
        with suppress(BlockingIOError, OSError):
            while packet := os.read(file, _MOST_BYTES):
                to = self._files.get(packet[_TO])
                if to is None:  # such as what asks for other machines on the network
                    continue
                self._number += 1
                if self._random.random() < rules.loss:
                    self.lost += 1
                    continue
                is_held_back = self._random.random() < rules.reordered
                self.held_back += is_held_back
                due_s = now_s + rules.latency_s + is_held_back * rules.behind_s
                heapq.heappush(self._late, (due_s, self._number, to, packet))

    def _hand_on(self) -> None:
        while self._late and self._late[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(self._late)
            with suppress(OSError):  # its queue is full, or its interface is down: it is lost, as packets are
                os.write(to, packet)
