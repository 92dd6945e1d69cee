"""How often something is done that changes no result: after so many rounds, or after so much time of the host."""

import re
from dataclasses import dataclass

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_HOST_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(s|min|h)", re.ASCII)

EXPECTED = 'must be a number of rounds, or the host\'s time such as "90 s", "5 min" or "1 h"; 0: never'


@dataclass(frozen=True)
class Interval:
    """Every `rounds` rounds, or at the end of the round in which `host_s` seconds have passed; never, if both are 0."""

    rounds: int = 0
    host_s: float = 0.0


def interval(said: object) -> Interval:
    """What `said` says: a number of rounds, or "5 min". Raises ValueError with what would be right."""
    if type(said) is int and said >= 0:
        return Interval(rounds=said)
    found = _HOST_TIME.fullmatch(said) if isinstance(said, str) else None
    if found is None or not (host_s := float(found[1]) * _SECONDS[found[2]]):
        raise ValueError(EXPECTED)
    return Interval(host_s=host_s)
