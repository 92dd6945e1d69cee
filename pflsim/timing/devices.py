"""Simulated devices: how long an actor's computing takes, from its FLOPs and its sustained FLOP/s.

`devices` in a run description is a preset's name (all clients alike, the server a "workstation") or a table:

    devices = { kind = "bimodal", flops_per_second = "phone", stragglers = 4, slowdown = 10,
                server_flops_per_second = "workstation" }

A table may begin with a preset and say only what is different: `devices = { preset = "phone", jitter = 0.3 }`.

A speed is a number or a preset's name. `pflsim.timing.families` has the kinds and their settings. Besides those:

    jitter     noise on a client's computing time, a factor with mean 1 that is drawn for each piece of work, also for
               one that is done again because it was lost or cancelled: a number is the standard deviation of its
               natural logarithm (log-normal), "exponential" makes the time of each piece exponential
    correlate  "size": speeds go with the clients' training samples; "label": clients with the same main label have
               neighbouring speeds (in an order of labels that is drawn); "none", the default: neither
    strength   how much: 1 is sorted (by size: who has most data is fastest), 0 random, about the rank correlation;
               by size also down to -1 (who has most data is slowest)
    power      what a client's device draws, and `server_power` what the server's does: see `pflsim.timing.power`
    file       what `pflsim calibrate` measured on this host: the speeds that the table itself does not give (but with
               kind = "trace", the trace)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pflsim.catalogue import near_match, validated
from pflsim.errors import DescriptionError
from pflsim.rng import stream
from pflsim.timing.calibration import read_speed
from pflsim.timing.correlation import correlated, label_trait
from pflsim.timing.families import KINDS, WITHOUT_TYPICAL, Quantity, Spread, check_kind, spread_over
from pflsim.timing.power import Power, power

__all__ = ["KINDS", "PRESETS", "WITHOUT_TYPICAL", "Device", "Devices", "resolved", "speed"]

SERVER = "server"

# Sustained FLOP/s in training small models in float32 with small batches, which is far below a data sheet's
# peak.
PRESETS = {
    # Raspberry Pi 4: its four cores reach 8e9 in double precision on large matrices (High Performance
    # Linpack, B. Feiereisen 2022), some twice that in float32, of which small matrices leave about a third.
    "raspberry-pi": 5e9,
    # A phone of the upper middle class: one big Arm core at 2.5 GHz x 16 FLOP a cycle (two 128-bit
    # multiply-adds) = 40e9 at most; half of that is sustained, and warmth forbids more cores for long.
    "phone": 20e9,
    # One AVX-512 core of a server: hand-derived gradients were measured at 28e9 (784-10, batch 20) to 116e9
    # (784-128-10, batch 32).
    "workstation": 100e9,
}

LEAST_FLOPS_PER_SECOND = 1.0
"""With less than that, times would leave what can be counted."""


@dataclass(frozen=True)
class Device:
    """Something that computes `flops_per_second`, sustained."""

    flops_per_second: float

    def seconds_ns(self, flops: float) -> int:
        """The simulated ns that `flops` take, rounded up; raises ValueError for less than none or no end."""
        if not 0 <= flops < math.inf:
            raise ValueError(f"{flops} FLOPs cannot be computed")
        if self.flops_per_second == math.inf:
            return 0
        work, part = flops.as_integer_ratio()  # whole numbers, so that rounding up never adds a ns by mistake
        speed, per = self.flops_per_second.as_integer_ratio()
        return -(-work * per * 10**9 // (part * speed))


@dataclass(frozen=True)
class _Extras:
    """What a table of devices may say beside the kind, its settings and the server's speed."""

    jitter: float | Literal["exponential"] = 0.0
    correlate: Literal["none", "size", "label"] = "none"
    strength: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.jitter, float) and not 0 <= self.jitter <= 10:
            raise DescriptionError("devices.jitter", self.jitter, 'must be from 0 to 10, or "exponential"')
        if (self.strength is None) != (self.correlate == "none"):
            expected = 'correlate = "size" and "label" need a strength, "none" takes none'
            raise DescriptionError("devices.strength", self.strength, expected)
        least = -1 if self.correlate == "size" else 0
        if self.strength is not None and not least <= self.strength <= 1:
            raise DescriptionError("devices.strength", self.strength, f"must be from {least} to 1")


_EXTRAS = ("jitter", "correlate", "strength")
_DRAWN = ("power", "server_power")


class Devices:
    """The devices of `actors`: the clients in the order given, and "server" if it is among them.

    Which clients are slow depends on nothing but `seed` and their number, unless it goes with their training
    samples, `sizes` [N], or with their main labels, `labels` [N] (the most frequent one of each). Raises
    DescriptionError for a `setting` that is neither a preset's name nor a table as above.
    """

    def __init__(
        self,
        setting: object,
        actors: Sequence[str],
        seed: int,
        *,
        sizes: Sequence[int] | None = None,
        labels: Sequence[int] | None = None,
    ) -> None:
        self.settings = resolved(setting)  # the full table, also of a preset or a file
        clients = [actor for actor in actors if actor != SERVER]
        given = {k: v for k, v in self.settings.items() if k not in (*_EXTRAS, *_DRAWN, "server_flops_per_second")}
        extras = _extras(self.settings)
        spread = spread_over(clients, given, FLOPS_PER_SECOND, stream(seed, "devices"), "devices")
        if extras.strength is not None:
            spread = _dealt(spread, extras.correlate, extras.strength, seed, sizes, labels)
        server = speed("devices.server_flops_per_second", self.settings["server_flops_per_second"])
        self._devices = {actor: Device(value) for actor, value in zip(clients, spread.values, strict=True)}
        self._devices[SERVER] = Device(server)
        self._classes = dict(zip(clients, spread.classes, strict=True)) | {SERVER: SERVER}
        self._jitter, self._seed = extras.jitter, seed
        each, of_server = (power(f"devices.{key}", self.settings.get(key)) for key in _DRAWN)
        drawn = dict.fromkeys(clients, each) | {SERVER: of_server}
        self.power: dict[str, Power] = {actor: one for actor, one in drawn.items() if one is not None}
        """What the devices draw, of those of whom it is known."""

    def device(self, actor: str) -> Device:
        """The device of `actor`; raises KeyError if there is no such actor."""
        return self._devices[actor]

    def speed_class(self, actor: str) -> str:
        """Under which name reports sum `actor` up: its class, its third ("slow", "middle", "fast"), or "server"."""
        return self._classes[actor]

    def seconds_ns(self, actor: str, flops: float) -> int:
        """The simulated ns that `actor` needs for `flops`, rounded up, without jitter."""
        return self._devices[actor].seconds_ns(flops)

    def work_ns(self, actor: str, flops: float, visit: int) -> int:
        """The simulated ns that `actor` needs for the `flops` of this `visit`; the server's work has no jitter."""
        if actor == SERVER or self._jitter == 0:
            return self.seconds_ns(actor, flops)
        return self.seconds_ns(actor, flops * self._factor(actor, visit))

    def _factor(self, actor: str, visit: int) -> float:
        rng = stream(self._seed, "devices", "jitter", actor, visit)
        if isinstance(self._jitter, float):
            return math.exp(self._jitter * rng.standard_normal() - self._jitter**2 / 2)
        return float(rng.standard_exponential())


def resolved(setting: object) -> dict[str, Any]:
    """The table that `setting` stands for, kind and server's speed checked; raises DescriptionError.

    What a file of `pflsim calibrate` states is in it as a number, so that it holds without the file.
    """
    if isinstance(setting, str):
        if setting not in PRESETS:
            raise DescriptionError("devices", setting, near_match(setting, sorted(PRESETS)) + ", or a table")
        return {"kind": "constant", "flops_per_second": setting, "server_flops_per_second": "workstation"}
    if not isinstance(setting, Mapping):
        raise DescriptionError("devices", setting, f"must be a table, or one of {', '.join(sorted(PRESETS))}")
    full = dict(setting)
    if "preset" in full:
        typical = full.pop("preset")
        speed("devices.preset", typical if isinstance(typical, str) else str(typical))
        full = {"kind": "constant", "server_flops_per_second": "workstation"} | full
        if full["kind"] not in WITHOUT_TYPICAL:
            full = {"flops_per_second": typical} | full
    if "file" in full and full.get("kind") != "trace":
        measured = read_speed("devices.file", full.pop("file"))
        full = {"kind": "constant", "server_flops_per_second": measured} | full
        if full["kind"] not in WITHOUT_TYPICAL:
            full = {"flops_per_second": measured} | full
    kind = check_kind(full, "devices")
    if "server_flops_per_second" not in full:
        raise DescriptionError("devices.server_flops_per_second", None, "is required")
    speed("devices.server_flops_per_second", full["server_flops_per_second"])
    for key in _DRAWN:
        power(f"devices.{key}", full.get(key))
    extras = _extras(full)
    if kind == "trace" and extras.correlate != "none":
        raise DescriptionError("devices.correlate", extras.correlate, "a trace says itself who is how fast")
    return full


def speed(key: str, given: object) -> float:
    """The FLOP/s that `given` (a number or a preset's name) at `key` stands for; raises DescriptionError."""
    if isinstance(given, str):
        if given not in PRESETS:
            raise DescriptionError(key, given, near_match(given, sorted(PRESETS)) + ", or a number of FLOP/s")
        return PRESETS[given]
    if given is None:
        raise DescriptionError(key, given, "is required")
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
        raise DescriptionError(key, given, "must be a number above 0, or a preset's name")
    if given < LEAST_FLOPS_PER_SECOND:
        raise DescriptionError(key, given, f"must be at least {LEAST_FLOPS_PER_SECOND:g} FLOP/s")
    return float(given)


FLOPS_PER_SECOND = Quantity("flops_per_second", speed, "flops_per_second")


def _extras(table: Mapping[str, Any]) -> _Extras:
    given = {name: table[name] for name in _EXTRAS if name in table}
    return _Extras(**validated(_Extras, given, "devices"))


def _dealt(
    spread: Spread,
    correlate: str,
    strength: float,
    seed: int,
    sizes: Sequence[int] | None,
    labels: Sequence[int] | None,
) -> Spread:
    """`spread` dealt to the clients by their sizes or their main labels."""
    rng = stream(seed, "devices", "correlate")
    if correlate == "size" and sizes is not None:
        return correlated(spread, [float(size) for size in sizes], strength, rng)
    if correlate == "label" and labels is not None:
        return correlated(spread, label_trait(labels, rng), strength, rng)
    raise DescriptionError("devices.correlate", correlate, f"these data have no {correlate} to go by")
