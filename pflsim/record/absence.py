"""When clients were away by their description, also while no work waited for them, which no span of theirs tells."""

from collections.abc import Mapping, Sequence
from typing import Any

from pflsim.timing.availability import Availability
from pflsim.timing.faults import Faults
from pflsim.timing.presence import Presence

SERVER = "server"


def absences(
    availability: object, faults: Sequence[Mapping[str, Any]], names: Sequence[str], seed: int, end_ns: int
) -> dict[str, list[tuple[int, int]]]:
    """By client, from when to when it was away before `end_ns`; crashes dated in rounds take no time of their own."""
    crashes = [fault for fault in faults if fault.get("kind") == "crash"]
    if availability in ("always", {"kind": "always"}) and not crashes:
        return {}
    presence = Presence(Availability(availability, names, seed), Faults(crashes, (SERVER, *names), seed))
    return {name: presence.away(name, end_ns) for name in names}
