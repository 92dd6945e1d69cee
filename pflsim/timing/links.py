"""Simulated links: how fast each actor sends and receives, how far they are apart, what a message weighs.

`links` in a run description is a preset's name or a full table; all rates are in Mbit/s of 10^6 bits:

    links = { client = { uplink_mbps = 20, downlink_mbps = 50 },
              server = { uplink_mbps = 1000, downlink_mbps = 1000 }, latency_ms = 10 }

A table may begin with a preset and say only what is different; what is a table in both is merged key by key:

    links = { preset = "wifi", latency_ms = 50, client = { uplink_mbps = 5 } }

Latency is one way. Rates are those of the bare line; `wire_bytes` adds what framing costs. A radio cell
that several clients share is not modelled here.

A client's rate may also be spread over the clients, by the same families as speeds (`pflsim.timing.families`) with
`mbps` as the typical value (a trace has columns `uplink_mbps` and `downlink_mbps`); a latency may differ from pair to
pair (`pflsim.timing.latency`); and jitter, loss and slow start (`pflsim.timing.disturbance`) may delay messages:

    links = { client = { uplink_mbps = { kind = "lognormal", mbps = 7, spread = 0.8 }, downlink_mbps = 20 },
              server = { uplink_mbps = 1000, downlink_mbps = 1000 },
              latency_ms = { kind = "distances", radius_km = 2000 }, jitter_ms = 3,
              loss = 0.01, retransmit_ms = 200, slow_start = true }
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pflsim.catalogue import near_match
from pflsim.errors import DescriptionError
from pflsim.rng import stream
from pflsim.timing import latency
from pflsim.timing.disturbance import NAMES, Delay, disturbance, slow_start_ns
from pflsim.timing.downlink import Downlink
from pflsim.timing.fair_share import LEAST_RATE, Transfer
from pflsim.timing.families import Quantity, check_kind, spread_over
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
    # With such round trips slow start counts: 1 MB takes 402 ms longer than the 80 ms at the full rate.
    "wan": _preset(100.0, 100.0, 1000.0, 40.0) | {"slow_start": True},
}

# Ethernet frames of 1500 bytes carry 20 of IPv4, 20 of TCP and 12 of its time stamps (RFC 7323) and so 1448
# of the stream; around them are 14 of header, 4 of checksum, 8 of preamble and 12 of silence (IEEE 802.3).
SEGMENT_BYTES = 1448
FRAMING_BYTES = 20 + 20 + 12 + 14 + 4 + 8 + 12
FULL_SEGMENT_BYTES = SEGMENT_BYTES + FRAMING_BYTES


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
    """The links between `actors`, "server" and the clients in their order, as the description's `links` says.

    All that is drawn depends on `seed` alone. Raises DescriptionError for a `setting` that cannot be.
    """

    def __init__(self, setting: object, actors: Sequence[str], seed: int = 0, *, aside: Sequence[str] = ()) -> None:
        """Whoever stands `aside` says nothing that takes simulated time, and needs no link."""
        self._aside = frozenset(aside)
        self.settings = resolved(setting)  # the full table, also of a preset
        self._actors, self._seed = frozenset(actors), seed
        self._rates: dict[tuple[str, str], float] = {}
        for direction in ("uplink_mbps", "downlink_mbps"):
            self._draw_rates(direction, [actor for actor in actors if actor != SERVER])
        rng = stream(seed, "links", "positions")
        self._latency = latency.latency(self.settings["latency_ms"], actors, rng, "links.latency_ms")
        self._disturbance = disturbance(self.settings, "links")
        self._uplinks: dict[str, Uplink] = {}
        self._downlinks: dict[str, Downlink] = {}

    def uplink_rate(self, actor: str) -> float:
        """In bytes/ns."""
        return self._rate(actor, "uplink_mbps")

    def downlink_rate(self, actor: str) -> float:
        """In bytes/ns."""
        return self._rate(actor, "downlink_mbps")

    def latency_ns(self, sender: str, receiver: str) -> int:
        """From the first bit's departure at `sender` to its arrival at `receiver`, undisturbed."""
        if not {sender, receiver} <= self._actors:
            raise KeyError(f"no link between {sender} and {receiver}")
        return self._latency(sender, receiver)

    def extra_latency_ns(self, sender: str, receiver: str, sequence: int) -> int:
        """How much later jitter and losses make message `sequence` of this pair."""
        return self._disturbance.delay_ns(self.delay(sender, receiver, sequence))

    def delay(self, sender: str, receiver: str, sequence: int) -> Delay:
        """What befalls message `sequence` of this pair: jitter, and how often something of it is sent again."""
        return self._disturbance.delay(self._seed, sender, receiver, sequence)

    def slow_start_ns(self, sender: str, receiver: str, size_bytes: int) -> int:
        """How much longer `size_bytes` on the wire take because the connection starts slowly; 0 if it does not."""
        if not self._disturbance.slow_start:
            return 0
        rate = min(self.uplink_rate(sender), self.downlink_rate(receiver))
        round_trip_ns = self.latency_ns(sender, receiver) + self.latency_ns(receiver, sender)
        return slow_start_ns(size_bytes, rate, round_trip_ns, FULL_SEGMENT_BYTES)

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

    def transfer(self, sender: str, receiver: str, size_bytes: int, sequence: int | None = None) -> Transfer:
        """What `uplink(sender).stamp` wants to know of a message of `size_bytes` on the wire.

        With its `sequence`, what jitter, losses and slow start add is in it; without, it is undisturbed.
        """
        latency_ns = self.latency_ns(sender, receiver)
        if sequence is not None:
            delay = self.delay(sender, receiver, sequence)
            latency_ns += self._disturbance.delay_ns(delay) + self.slow_start_ns(sender, receiver, size_bytes)
            size_bytes += delay.retransmissions * min(size_bytes, FULL_SEGMENT_BYTES)
        return Transfer(receiver, size_bytes, self.downlink_rate(receiver), latency_ns)

    def _draw_rates(self, direction: str, clients: Sequence[str]) -> None:
        given = self.settings["client"][direction]
        if isinstance(given, Mapping):
            rng = stream(self._seed, "links", direction)
            rate = Quantity("mbps", _mbps, direction)
            values = spread_over(clients, given, rate, rng, f"links.client.{direction}").values
            rates = [max(value, LEAST_RATE / BYTES_PER_NS) for value in values]  # the tails of a family have no end
        else:
            rates = [given] * len(clients)
        self._rates |= {(client, direction): rate for client, rate in zip(clients, rates, strict=True)}
        self._rates[SERVER, direction] = self.settings["server"][direction]

    def _rate(self, actor: str, direction: str) -> float:
        if actor in self._aside:
            return math.inf
        if actor not in self._actors:
            raise KeyError(f"no actor {actor} has a link")
        return self._rates[actor, direction] * BYTES_PER_NS


def resolved(setting: object) -> dict[str, Any]:
    """The full table that `setting`, a preset's name or a table, stands for; raises DescriptionError."""
    if isinstance(setting, str):
        setting = _preset_named("links", setting)
    elif isinstance(setting, Mapping) and "preset" in setting:
        setting = _varied(_preset_named("links.preset", setting["preset"]), setting)
    ends = _table("links", setting, ["client", "latency_ms", "server"], NAMES)
    full: dict[str, Any] = {"latency_ms": latency.check(ends["latency_ms"], "links.latency_ms")}
    for end in ("client", "server"):
        rates = _table(f"links.{end}", ends[end], ["downlink_mbps", "uplink_mbps"])
        full[end] = {name: _given_rate(end, name, rates[name]) for name in sorted(rates)}
    disturbance(ends, "links")
    return full | {name: ends[name] for name in NAMES if name in ends}


def _preset_named(key: str, name: object) -> dict[str, Any]:
    if not isinstance(name, str) or name not in PRESETS:
        raise DescriptionError(key, name, f"{near_match(str(name), sorted(PRESETS))}, or a table")
    return PRESETS[name]


def _varied(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`preset` with what `given` says besides in its place; the ends are merged rate by rate."""
    full = dict(preset)
    for name, value in given.items():
        if name in ("client", "server") and isinstance(value, Mapping):
            full[name] = preset[name] | dict(value)
        elif name != "preset":
            full[name] = value
    return full


def _table(key: str, given: object, required: Sequence[str], optional: Sequence[str] = ()) -> Mapping[str, Any]:
    known = sorted([*required, *optional])
    if not isinstance(given, Mapping):
        raise DescriptionError(key, given, f"must be a table of {', '.join(known)}")
    for name, value in given.items():
        if name not in known:
            raise DescriptionError(f"{key}.{name}", value, f"unknown key; {near_match(name, known)}")
    for name in required:
        if name not in given:
            raise DescriptionError(f"{key}.{name}", None, "is required")
    return given


def _given_rate(end: str, direction: str, given: object) -> float | dict[str, Any]:
    """A rate in Mbit/s, or for the clients also a table that says how it is spread."""
    key = f"links.{end}.{direction}"
    if end == "client" and isinstance(given, Mapping):
        check_kind(given, key)
        return dict(given)
    return _mbps(key, given)


def _mbps(key: str, given: object) -> float:
    """A rate in Mbit/s: above zero, and it may be infinite."""
    if given is None:
        raise DescriptionError(key, given, "is required")
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise DescriptionError(key, given, "must be a number")
    if not given >= LEAST_RATE / BYTES_PER_NS:
        raise DescriptionError(key, given, "must be above 0, and at least 1 bit/s")
    return float(given)
