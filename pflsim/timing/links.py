"""Simulated links: how fast each actor sends and receives, how far they are apart, what a message weighs.

`links` in a run description is a preset's name or a full table; all rates are in Mbit/s of 10^6 bits:

    links = { client = { uplink_mbps = 20, downlink_mbps = 50 },
              server = { uplink_mbps = 1000, downlink_mbps = 1000 }, latency_ms = 10 }

Latency is one way. Rates are those of the bare line; `wire_bytes` adds what framing costs. A radio cell
that several clients share, slow start, jitter and loss are not modelled here.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pflsim.catalogue import near_match
from pflsim.errors import DescriptionError
from pflsim.timing.downlink import Downlink
from pflsim.timing.fair_share import LEAST_RATE, Transfer
from pflsim.timing.uplink import Uplink

SERVER = "server"
BYTES_PER_NS = 1e6 / 8 / 1e9  # of one Mbit/s


def _preset(uplink_mbps: float, downlink_mbps: float, server_mbps: float, latency_ms: float) -> dict[str, Any]:
    return {
        "client": {"uplink_mbps": uplink_mbps, "downlink_mbps": downlink_mbps},
        "server": {"uplink_mbps": server_mbps, "downlink_mbps": server_mbps},
        "latency_ms": latency_ms,
    }


PRESETS: dict[str, dict[str, Any]] = {
    # No network at all: every message takes 1 ns, the least there is. For studies in which only computing
    # counts.
    "ideal": _preset(math.inf, math.inf, math.inf, 0.0),
    # A room or a rack: gigabit Ethernet everywhere, 0.2 ms there and back through a switch and two kernels.
    "lan": _preset(1000.0, 1000.0, 1000.0, 0.1),
    # A building: the server on gigabit Ethernet, clients on 802.11n/ac radio some walls away, where 100
    # Mbit/s each way is a usual sustained rate whatever the box says; the radio's contention makes some 4
    # ms there and back.
    "wifi": _preset(100.0, 100.0, 1000.0, 2.0),
    # Phones on LTE: about what the better networks of the USA gave on average in 2019 (OpenSignal: 21
    # Mbit/s down, 7 up, 58 to 63 ms there and back); the server is in a data centre, where 1 Gbit/s is the
    # usual port.
    "4g": _preset(7.0, 20.0, 1000.0, 30.0),
    # Sites such as hospitals or branches on business lines of 100 Mbit/s each way, on two continents: light
    # needs 60 ms for 6000 km of fibre and back, routes and routers make it 80.
    "wan": _preset(100.0, 100.0, 1000.0, 40.0),
}

# Ethernet frames of 1500 bytes carry 20 of IPv4, 20 of TCP and 12 of its time stamps (RFC 7323) and so 1448
# of the stream; around them are 14 of header, 4 of checksum, 8 of preamble and 12 of silence (IEEE 802.3).
SEGMENT_BYTES = 1448
FRAMING_BYTES = 20 + 20 + 12 + 14 + 4 + 8 + 12


def wire_bytes(frame_sizes: Iterable[int]) -> int:
    """The bytes that a message of these ZeroMQ frames occupies on the wire.

    stream = sum of (size + 2, or size + 9 above 255 bytes): ZMTP 3 puts one byte of flags and a length of
    one or of eight bytes before each frame. wire = stream + 90 * ceil(stream / 1448): each TCP segment
    carries up to SEGMENT_BYTES and costs FRAMING_BYTES of TCP, IPv4 and Ethernet. Acknowledgements, which
    travel the other way and weigh some 3 % of this, are left out.
    """
    stream = sum([size + (2 if size < 256 else 9) for size in frame_sizes])
    return stream + FRAMING_BYTES * -(-stream // SEGMENT_BYTES)


class Links:
    """The links between `actors`, as the description's `links` says: all but "server" have the same rates."""

    def __init__(self, setting: object, actors: Sequence[str]) -> None:
        self.settings = resolved(setting)  # the full table, also of a preset
        self._actors = frozenset(actors)
        self._latency_ns: int = round(self.settings["latency_ms"] * 1e6)
        self._uplinks: dict[str, Uplink] = {}
        self._downlinks: dict[str, Downlink] = {}

    def uplink_rate(self, actor: str) -> float:
        """In bytes/ns."""
        return self._rate(actor, "uplink_mbps")

    def downlink_rate(self, actor: str) -> float:
        """In bytes/ns."""
        return self._rate(actor, "downlink_mbps")

    def latency_ns(self, sender: str, receiver: str) -> int:
        """From the first bit's departure at `sender` to its arrival at `receiver`."""
        if not {sender, receiver} <= self._actors:
            raise KeyError(f"no link between {sender} and {receiver}")
        return self._latency_ns

    def uplink(self, actor: str) -> Uplink:
        """The one uplink of `actor`, with all that it has stamped so far."""
        if actor not in self._uplinks:
            self._uplinks[actor] = Uplink(self.uplink_rate(actor))
        return self._uplinks[actor]

    def downlink(self, actor: str) -> Downlink:
        """The one downlink of `actor`, with all that is coming in."""
        if actor not in self._downlinks:
            self._downlinks[actor] = Downlink(self.downlink_rate(actor))
        return self._downlinks[actor]

    def transfer(self, sender: str, receiver: str, size_bytes: int) -> Transfer:
        """What `uplink(sender).stamp` wants to know of a message of `size_bytes` on the wire."""
        return Transfer(receiver, size_bytes, self.downlink_rate(receiver), self.latency_ns(sender, receiver))

    def _rate(self, actor: str, direction: str) -> float:
        if actor not in self._actors:
            raise KeyError(f"no actor {actor} has a link")
        mbps: float = self.settings["server" if actor == SERVER else "client"][direction]
        return mbps * BYTES_PER_NS


def resolved(setting: object) -> dict[str, Any]:
    """The full table that `setting`, a preset's name or a table, stands for; raises DescriptionError."""
    if isinstance(setting, str):
        if setting not in PRESETS:
            raise DescriptionError("links", setting, f"{near_match(setting, sorted(PRESETS))}, or a table")
        setting = PRESETS[setting]
    ends = _table("links", setting, ["client", "latency_ms", "server"])
    full: dict[str, Any] = {"latency_ms": _number("links.latency_ms", ends["latency_ms"], zero=True)}
    for end in ("client", "server"):
        rates = _table(f"links.{end}", ends[end], ["downlink_mbps", "uplink_mbps"])
        full[end] = {name: _number(f"links.{end}.{name}", rates[name], zero=False) for name in sorted(rates)}
    return full


def _table(key: str, given: object, known: list[str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise DescriptionError(key, given, f"must be a table of {', '.join(known)}")
    for name, value in given.items():
        if name not in known:
            raise DescriptionError(f"{key}.{name}", value, f"unknown key; {near_match(name, known)}")
    for name in known:
        if name not in given:
            raise DescriptionError(f"{key}.{name}", None, "is required")
    return given


def _number(key: str, given: object, zero: bool) -> float:
    """A rate (above zero, may be infinite) or a latency (from zero, and finite)."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise DescriptionError(key, given, "must be a number")
    if zero and not 0 <= given < math.inf:
        raise DescriptionError(key, given, "must be a finite number from 0")
    if not zero and not given >= LEAST_RATE / BYTES_PER_NS:
        raise DescriptionError(key, given, "must be above 0, and at least 1 bit/s")
    return float(given)
