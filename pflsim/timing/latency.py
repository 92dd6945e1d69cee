"""How far actors are apart: the one-way latency between each two, in nanoseconds.

`latency_ms` in a table of links is one number for all, or a table:

    latency_ms = { kind = "matrix", file = "latency.csv" }
    latency_ms = { kind = "distances", radius_km = 2000, detour = 1.5, base_ms = 1 }
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pflsim.catalogue import near_match, validated
from pflsim.errors import DescriptionError
from pflsim.timing.traces import SERVER, read_rows_by_actor

NS_PER_MS = 1_000_000
MOST_KM = 1e6
MOST_MS = 1e9  # eleven days, so that what is worked out from it can be counted in ns

# Light in vacuum makes 299,792.458 km/s (exact, by the definition of the metre); the group index of standard
# single-mode fibre (ITU-T G.652) is about 1.468 at 1550 nm.
KM_PER_MS_IN_FIBRE = 299_792.458 / 1.468 / 1000

Latency = Callable[[str, str], int]  # from a sender to a receiver, in ns


def latency(setting: object, actors: Sequence[str], rng: np.random.Generator, key: str) -> Latency:
    """What `setting`, checked or not, says of the latency between each two of `actors`; raises DescriptionError."""
    if not isinstance(setting, Mapping):
        everywhere_ns = round(milliseconds(key, setting) * NS_PER_MS)
        return lambda sender, receiver: everywhere_ns
    check(setting, key)
    kind = KINDS[setting["kind"]]
    given = {name: value for name, value in setting.items() if name != "kind"}
    return kind(actors, rng, key, **validated(kind, given, key))


def check(setting: object, key: str) -> object:
    """`setting`, a number as a float, a table with a kind that is known; raises DescriptionError."""
    if not isinstance(setting, Mapping):
        return milliseconds(key, setting)
    if "kind" not in setting:
        raise DescriptionError(f"{key}.kind", None, "is required")
    if not isinstance(setting["kind"], str) or setting["kind"] not in KINDS:
        raise DescriptionError(f"{key}.kind", setting["kind"], near_match(str(setting["kind"]), sorted(KINDS)))
    return dict(setting)


def milliseconds(key: str, given: object) -> float:
    """A time from 0 in ms; raises DescriptionError."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise DescriptionError(key, given, "must be a number")
    if not 0 <= given <= MOST_MS:
        raise DescriptionError(key, given, f"must be a finite number from 0, and at most {MOST_MS:g} ms")
    return float(given)


def _matrix(actors: Sequence[str], rng: np.random.Generator, key: str, *, file: str) -> Latency:
    """A CSV file: a row per sender, its name in the column `sender`, and a column per receiver, in ms."""
    rows = read_rows_by_actor(f"{key}.file", file, actors, "sender", (), actors)
    ns: dict[tuple[str, str], int] = {}
    for sender, row in zip(actors, rows, strict=True):
        for receiver in actors:
            if sender != receiver:
                if not row.values[receiver]:
                    raise row.wrong(f"has no {receiver}")
                ns[sender, receiver] = round(row.number(receiver, most=MOST_MS) * NS_PER_MS)
    return lambda sender, receiver: ns.get((sender, receiver), 0)


def _distances(
    actors: Sequence[str],
    rng: np.random.Generator,
    key: str,
    *,
    radius_km: float | None = None,  # positions are drawn, uniformly from a disc of this radius about the server
    file: str | None = None,  # or read: a CSV file with the columns actor, x_km and y_km
    detour: float = 1.0,  # how much longer the fibre is than the straight line
    base_ms: float = 0.0,  # what every message takes besides: routers, kernels, the last mile
) -> Latency:
    """base_ms + distance x detour / the speed of light in fibre, 204,218 km/s; positions are drawn or read."""
    if (radius_km is None) == (file is None):
        raise DescriptionError(f"{key}.radius_km, {key}.file", (radius_km, file), "give one of the two")
    if not 1 <= detour <= 1000:
        raise DescriptionError(f"{key}.detour", detour, "must be from 1, the straight line, to 1000")
    base_ms = milliseconds(f"{key}.base_ms", base_ms)
    if file is not None:
        rows = read_rows_by_actor(f"{key}.file", file, actors, "actor", ["x_km", "y_km"])
        places = [
            (row.number("x_km", -MOST_KM, most=MOST_KM), row.number("y_km", -MOST_KM, most=MOST_KM)) for row in rows
        ]
        at = dict(zip(actors, places, strict=True))
    else:
        at = _drawn_positions(actors, rng, f"{key}.radius_km", radius_km or 0.0)

    def ns(sender: str, receiver: str) -> int:
        return round((base_ms + math.dist(at[sender], at[receiver]) * detour / KM_PER_MS_IN_FIBRE) * NS_PER_MS)

    return ns


KINDS: dict[str, Callable[..., Latency]] = {"distances": _distances, "matrix": _matrix}


def _drawn_positions(
    actors: Sequence[str], rng: np.random.Generator, key: str, radius_km: float
) -> dict[str, tuple[float, float]]:
    """Where the actors are, in km: the server in the middle, the others uniformly over the disc."""
    if not 0 <= radius_km <= MOST_KM:
        raise DescriptionError(key, radius_km, f"must be from 0 to {MOST_KM:g} km")
    at = {}
    for actor in actors:
        if actor == SERVER:
            at[actor] = (0.0, 0.0)
            continue
        distance, angle = radius_km * math.sqrt(rng.random()), 2 * math.pi * rng.random()
        at[actor] = (distance * math.cos(angle), distance * math.sin(angle))
    return at
