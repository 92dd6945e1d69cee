"""How far the models of peers are from each other, and how old what a peer used of each neighbour was.

Without a server nobody has all models. So at each evaluation every peer tells a sketch of the model that it shows:
SKETCHED numbers, to each of which many parameters are added with random signs (Charikar, Chen, Farach-Colton: Finding
Frequent Items in Data Streams), the same for all. The sketch S is linear, and E ||S x||^2 = ||x||^2, so that the
distances of sketches estimate those of models. Its relative standard error is at most sqrt(2 / SKETCHED) = 12.5 %,
reached where all models differ in one direction; in r directions alike it is sqrt(2 / (SKETCHED r)). A model of up
to SKETCHED parameters is its own sketch, and small models are told whole at the end: then the distance is exact.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pflsim.record.database import Reader, unpacked
from pflsim.rng import stream

SKETCHED = 128
"""Numbers in a sketch."""

MOST_TOLD = 1_000_000
"""Models are told at the end if all of them have no more numbers together."""

SKETCH, FINAL = "consensus sketch", "final model"
"""The measures that peers tell."""

AGE_OF, IN_SECONDS = "age of ", ", s"
"""`age of NAME, s`: how many simulated seconds had passed since what a peer used of neighbour NAME had left it."""


class Consensus(NamedTuple):
    """(1/N) sum_k ||w_k - wbar||^2 of the models that peers show."""

    distance: float
    is_exact: bool
    relative_error: float  # the standard error of an estimate is at most that; 0 if it is exact


class Staleness(NamedTuple):
    """How old what `peer` used of `neighbour` was."""

    peer: str
    neighbour: str
    uses: int
    mean_age_s: float
    largest_age_s: float


def flat(shown: Mapping[str, object]) -> np.ndarray:
    """What a peer shows as one vector [d] float32, its tensors in the order of their names."""
    parts = [np.asarray(shown[name], dtype=np.float32).ravel() for name in sorted(shown)]
    return np.concatenate([np.empty(0, np.float32), *parts])  # who shows nothing has a vector without numbers


def sketch(vector: np.ndarray, seed: int) -> np.ndarray:
    """The sketch of a vector [d], [min(d, SKETCHED)] float32; equal for equal seeds."""
    if len(vector) <= SKETCHED:
        return np.asarray(vector, dtype=np.float32)
    place, sign = _scattering(len(vector), seed)
    return np.bincount(place, weights=sign * vector, minlength=SKETCHED).astype(np.float32)


@lru_cache(maxsize=2)
def _scattering(dimension: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """To which number of a sketch each parameter is added, and with which sign."""
    rng = stream(seed, "consensus")
    return rng.integers(SKETCHED, size=dimension), rng.choice(np.array([-1.0, 1.0]), size=dimension)


def consensus_distance(models: np.ndarray) -> float:
    """(1/N) sum_k ||w_k - wbar||^2 of models [N, d], wbar their plain mean; in float64, 0 if all are equal."""
    w = np.asarray(models, dtype=np.float64)
    return float(((w - w.mean(axis=0)) ** 2).sum() / len(w))


def consensus_over_rounds(reader: Reader) -> list[tuple[int, float]]:
    """(round, consensus distance) for every round of which all peers told a sketch, ascending.

    Each peer's model is that after its own round, whenever that was; estimates, see above.
    """
    rounds: defaultdict[int, list[np.ndarray]] = defaultdict(list)
    for round, value in reader.query("SELECT round, value FROM measures WHERE name = ? ORDER BY actor", SKETCH):
        rounds[round].append(unpacked(value))
    everybody = max(map(len, rounds.values()), default=0)
    whole = [(round, own) for round, own in sorted(rounds.items()) if len(own) == everybody]
    return [(round, consensus_distance(np.stack(own))) for round, own in whole]


def last_consensus(reader: Reader) -> Consensus | None:
    """Of the models that were told at the end; else of the last round of which all peers told a sketch."""
    told = [unpacked(value) for (value,) in reader.query("SELECT value FROM measures WHERE name = ?", FINAL)]
    if told:
        return Consensus(consensus_distance(np.stack(told)), True, 0.0)
    rounds = consensus_over_rounds(reader)
    if not rounds:
        return None
    sizes = {len(unpacked(value)) for (value,) in reader.query("SELECT value FROM measures WHERE name = ?", SKETCH)}
    is_exact = max(sizes) < SKETCHED
    return Consensus(rounds[-1][1], is_exact, 0.0 if is_exact else math.sqrt(2 / SKETCHED))


def staleness_per_edge(reader: Reader) -> list[Staleness]:
    """One row for each (peer, neighbour) of which an age was told, in the order of their names."""
    select = (
        "SELECT actor, name, COUNT(*), AVG(value), MAX(value) FROM measures WHERE name LIKE ? AND value IS NOT NULL "
        "GROUP BY actor, name ORDER BY actor, name"
    )
    return [
        Staleness(actor, name.removeprefix(AGE_OF).removesuffix(IN_SECONDS), uses, mean_s, largest_s)
        for actor, name, uses, mean_s, largest_s in reader.query(select, f"{AGE_OF}%{IN_SECONDS}")
    ]
