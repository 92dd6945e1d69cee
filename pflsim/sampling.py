"""Who takes part in a round: the interface of a sampling, which is a file in `samplings/`, and what it may know.

`schedule.sampling` in a run description is a sampling's name, or a table with its name as `kind` and its settings:

    sampling = "uniform"
    sampling = { kind = "groups", groups = 10, grouping = "by-speed" }
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from pflsim import catalogue
from pflsim.errors import DescriptionError

Setting: TypeAlias = str | dict[str, Any]
Strata: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Population:
    """What a sampling may know of all N clients; the same in every round."""

    sizes: np.ndarray  # [N] int64, training samples
    label_counts: np.ndarray | None  # [N, C] int64, training samples by label; None where the data have no labels
    visit_s: np.ndarray  # [N] predicted simulated seconds of a visit: undisturbed transfers, and work without jitter
    strata: Strata = ()  # what the sampling's own `strata` made of this, once for the whole run


class Sampling(Protocol):
    """A frozen dataclass whose fields are its settings; pure: it keeps nothing, and draws only from the `rng` given.

    Optional: strata(population, rng) -> Strata    fixed, disjoint parts of the population, in a fixed order
    """

    @property
    def needs_losses(self) -> bool:
        """Whether a client that works reports its mean training loss at the model that it received."""
        return False

    def asked_first(
        self, population: Population, candidates: Sequence[int], rng: np.random.Generator
    ) -> tuple[int, ...] | None:
        """Who of the candidates is sent the model before the drawing, and asked for its mean training loss there.

        Who reports one is then a candidate, and nobody else. None: nobody is asked, and all remain candidates.
        """
        return None

    def check(self, clients: int, count: int) -> None:
        """Raises DescriptionError for what has no meaning where `count` of so many clients are to be drawn."""
        return  # unless a sampling says otherwise, nothing has none

    def least(self, clients: int, count: int) -> int:
        """How many are drawn at least when `count` are wanted and everybody may be drawn."""
        return count

    @abstractmethod
    def drawn(
        self,
        population: Population,
        candidates: Sequence[int],
        count: int,
        round: int,
        rng: np.random.Generator,
        losses: Mapping[int, float],
    ) -> tuple[int, ...]:
        """The ids, ascending, of the cohort of a round (from 0): `count` of the candidates, or as many as there are.

        `candidates` are the ids, ascending, that may be drawn now. `losses` are what clients reported last, by id.
        """


def load(setting: Setting, key: str = "schedule.sampling") -> Sampling:
    """The sampling that `setting` names, with its settings checked; raises DescriptionError."""
    kind, given = _parts(setting, key)
    found = catalogue.find("samplings", kind, key if isinstance(setting, str) else f"{key}.kind")
    settings = catalogue.validated(found, given, key)
    sampling: Sampling = catalogue.made(found, key, kind, object, **settings)
    missing = [name for name in ("check", "least", "drawn") if not callable(getattr(sampling, name, None))]
    missing += [] if isinstance(getattr(sampling, "needs_losses", None), bool) else ["needs_losses"]
    if missing:
        expected = f"has no {', '.join(missing)}; pflsim/sampling.py tells what a sampling must have"
        raise DescriptionError(key, kind, expected)
    return sampling


def resolved(setting: Setting, key: str = "schedule.sampling") -> Setting:
    """`setting` with every default that is in force; one without settings stays a name."""
    kind, given = _parts(setting, key)
    found = catalogue.find("samplings", kind, key)
    settings = catalogue.validated(found, given, key)
    return {"kind": kind, **settings} if settings else kind


def shortfall(sampling: Sampling, clients: int, count: int) -> list[str]:
    """What somebody who wants `count` of so many clients in a round should know."""
    least = sampling.least(clients, count)
    if least >= count:
        return []
    return [f"schedule.sampling: {count} clients are wanted in a round, but in some there are only {least} to draw"]


def takes_all(setting: Setting) -> bool:
    """Whether everybody takes part in every round, so that a cohort has no size."""
    return _parts(setting, "")[0] == "all"


def some(candidates: Sequence[int], count: int, rng: np.random.Generator) -> tuple[int, ...]:
    """`count` of the candidates (all, where there are not more), uniformly without replacement, ascending."""
    drawn = rng.choice(len(candidates), min(count, len(candidates)), replace=False)
    return tuple(sorted(int(candidates[place]) for place in drawn))


def cut(order: Sequence[int], parts: int) -> Strata:
    """`order` cut into so many runs whose lengths differ by one at most, the longer ones first; ids ascending."""
    return tuple(tuple(sorted(int(client) for client in part)) for part in np.array_split(np.asarray(order), parts))


def _parts(setting: Setting, key: str) -> tuple[str, dict[str, Any]]:
    if isinstance(setting, str):
        return setting, {}
    if not isinstance(setting.get("kind"), str):
        raise DescriptionError(f"{key}.kind", setting.get("kind"), "is required: the name of a sampling")
    return setting["kind"], {name: value for name, value in setting.items() if name != "kind"}
