"""How far models of peers are from each other, and how old what a peer used of each neighbour was.

Both are read from the measures that peers tell: `consensus distance`, and `age of NAME` for a neighbour NAME.
"""

from typing import NamedTuple

import numpy as np

from pflsim.record.database import Reader

CONSENSUS = "consensus distance"
"""The measure of a round: told once for all, or by every peer its own ||w_k - mean||^2, whose mean it then is."""

AGE_OF = "age of "
"""What a measure's name begins with that tells how many versions old what a peer used of that neighbour was."""


class Staleness(NamedTuple):
    """How old what `peer` used of `neighbour` was, in the neighbour's versions."""

    peer: str
    neighbour: str
    uses: int
    mean_age: float
    largest_age: float


def consensus_distance(models: np.ndarray) -> float:
    """(1/N) sum_k ||w_k - wbar||^2 of models [N, d], wbar their plain mean; in float64, 0 if all are equal."""
    w = np.asarray(models, dtype=np.float64)
    return float(((w - w.mean(axis=0)) ** 2).sum() / len(w))


def consensus_over_rounds(reader: Reader) -> list[tuple[int, float]]:
    """(round, consensus distance) for every round in which it was told, ascending."""
    select = "SELECT round, AVG(value) FROM measures WHERE name = ? AND value IS NOT NULL GROUP BY round ORDER BY round"
    return [(int(round), float(value)) for round, value in reader.query(select, CONSENSUS)]


def staleness_per_edge(reader: Reader) -> list[Staleness]:
    """One row for each (peer, neighbour) of which an age was told, in the order of their names."""
    select = (
        "SELECT actor, name, COUNT(*), AVG(value), MAX(value) FROM measures WHERE name LIKE ? AND value IS NOT NULL "
        "GROUP BY actor, name ORDER BY actor, name"
    )
    return [
        Staleness(str(actor), str(name).removeprefix(AGE_OF), int(uses), float(mean), float(largest))
        for actor, name, uses, mean, largest in reader.query(select, f"{AGE_OF}%")
    ]


def staleness_of(ages: np.ndarray, names: tuple[str, ...]) -> list[Staleness]:
    """The same of ages [uses, N, N] in versions: of what peer k (second axis) used of l (third); nan where nothing."""
    rows = []
    for k, peer in enumerate(names):
        for other, neighbour in enumerate(names):
            own = ages[:, k, other][np.isfinite(ages[:, k, other])]
            if len(own):
                rows.append(Staleness(peer, neighbour, len(own), float(own.mean()), float(own.max())))
    return rows
