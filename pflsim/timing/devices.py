"""Simulated devices: how long an actor's computing takes, from its FLOPs and its sustained FLOP/s.

`devices` in a run description is a preset's name (all clients alike, the server a "workstation") or a table:

    devices = { kind = "bimodal", flops_per_second = "phone", stragglers = 4, slowdown = 10,
                server_flops_per_second = "workstation" }

A speed is a number or a preset's name. To add a kind, add a function to KINDS: it gives each client's
speed, and its keyword-only parameters are its settings.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pflsim.catalogue import near_match, validated
from pflsim.errors import DescriptionError
from pflsim.rng import stream

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


def _constant(clients: int, rng: np.random.Generator, *, flops_per_second: float | str) -> list[float]:
    """All clients are equally fast."""
    return [speed("devices.flops_per_second", flops_per_second)] * clients


def _bimodal(
    clients: int,
    rng: np.random.Generator,
    *,
    flops_per_second: float | str,
    stragglers: int | float,  # how many (an integer), or which share of the clients (a float)
    slowdown: float,
) -> list[float]:
    """`stragglers` of the clients, drawn without replacement, are `slowdown` times slower than the others."""
    if not 1 <= slowdown < math.inf:
        raise DescriptionError("devices.slowdown", slowdown, "must be a number from 1")
    most = clients if isinstance(stragglers, int) else 1.0
    if not 0 <= stragglers <= most:
        raise DescriptionError(
            "devices.stragglers", stragglers, f"must be a count up to {clients} or a share up to 1.0"
        )
    count = stragglers if isinstance(stragglers, int) else math.floor(stragglers * clients + 0.5)
    fast = speed("devices.flops_per_second", flops_per_second)
    slow = frozenset(rng.choice(clients, size=count, replace=False).tolist())
    return [fast / slowdown if client in slow else fast for client in range(clients)]


KINDS: dict[str, Callable[..., list[float]]] = {"bimodal": _bimodal, "constant": _constant}


class Devices:
    """The devices of `actors`: the clients in the order given, and "server" if it is among them.

    Which clients are slow depends on nothing but `seed` and their number. Raises DescriptionError for a
    `setting` that is neither a preset's name nor a table as above.
    """

    def __init__(self, setting: object, actors: Sequence[str], seed: int) -> None:
        self.settings = resolved(setting)  # the full table, also of a preset
        clients = [actor for actor in actors if actor != SERVER]
        given = {k: v for k, v in self.settings.items() if k not in ("kind", "server_flops_per_second")}
        kind = KINDS[self.settings["kind"]]
        speeds = kind(len(clients), stream(seed, "devices"), **validated(kind, given, "devices"))
        server = speed("devices.server_flops_per_second", self.settings["server_flops_per_second"])
        self._devices = {actor: Device(value) for actor, value in zip(clients, speeds, strict=True)}
        self._devices[SERVER] = Device(server)

    def device(self, actor: str) -> Device:
        """The device of `actor`; raises KeyError if there is no such actor."""
        return self._devices[actor]

    def seconds_ns(self, actor: str, flops: float) -> int:
        """The simulated ns that `actor` needs for `flops`, rounded up."""
        return self._devices[actor].seconds_ns(flops)


def resolved(setting: object) -> dict[str, Any]:
    """The table that `setting` stands for, kind and server's speed checked; raises DescriptionError."""
    if isinstance(setting, str):
        speed("devices", setting)
        return {"kind": "constant", "flops_per_second": setting, "server_flops_per_second": "workstation"}
    if not isinstance(setting, Mapping):
        raise DescriptionError("devices", setting, f"must be a table, or one of {', '.join(sorted(PRESETS))}")
    for name in ("kind", "server_flops_per_second"):
        if name not in setting:
            raise DescriptionError(f"devices.{name}", None, "is required")
    if setting["kind"] not in KINDS:
        raise DescriptionError("devices.kind", setting["kind"], near_match(str(setting["kind"]), sorted(KINDS)))
    speed("devices.server_flops_per_second", setting["server_flops_per_second"])
    return dict(setting)


def speed(key: str, given: object) -> float:
    """The FLOP/s that `given` (a number or a preset's name) at `key` stands for; raises DescriptionError."""
    if isinstance(given, str):
        if given not in PRESETS:
            raise DescriptionError(key, given, near_match(given, sorted(PRESETS)) + ", or a number of FLOP/s")
        return PRESETS[given]
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
        raise DescriptionError(key, given, "must be a number above 0, or a preset's name")
    return float(given)
