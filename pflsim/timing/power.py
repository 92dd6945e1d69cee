"""What a device draws: so many watts while it computes, while it sends, and while it does neither.

    devices = { preset = "phone", power = { computing_w = 4.0, sending_w = 1.3, idle_w = 0.4 } }

is every client's; `server_power` is the server's, and without it the server's energy is not told. A device sends as
long as something of it is under way that arrives, the latency of the link included; it computes, whatever is under way
then. What it draws while it takes something in is what it draws when idle, and while it is away it draws nothing for
the study. There are no presets: what a device draws depends on its screen, its radio and its cooling, and nobody
should publish joules whose watts they did not choose.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pflsim.catalogue import validated
from pflsim.errors import DescriptionError

MOST_W = 1e6


@dataclass(frozen=True)
class Power:
    """What a device draws, in watts."""

    computing_w: float
    sending_w: float
    idle_w: float


def power(key: str, given: object) -> Power | None:
    """What the table at `key` says, None without one; raises DescriptionError for what cannot be."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise DescriptionError(key, given, "must be a table with computing_w, sending_w and idle_w, in watts")
    table: dict[str, Any] = dict(given)
    found = Power(**validated(Power, table, key))
    for field in fields(Power):
        if not 0 <= (value := getattr(found, field.name)) <= MOST_W:
            raise DescriptionError(f"{key}.{field.name}", value, f"must be from 0 to {MOST_W:g} W")
    return found
