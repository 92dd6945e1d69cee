"""Chooses a row's settings from its trials, all of which are kept: also those that diverged or failed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.sweep.reading import Outcome
from pflsim.sweep_file import Settings


@dataclass(frozen=True)
class Trial:
    """One combination of a grid, run with each of the tuning seeds and folds."""

    settings: Settings
    outcomes: Mapping[tuple[int, int], Outcome]
    """By seed and fold."""
    measure: str

    @property
    def score(self) -> float | None:
        """The mean over its runs on validation data, a fraction of 1; None if one of them failed or diverged."""
        scores = [outcome.measured(self.measure) for outcome in self.outcomes.values()]
        known = [score for score in scores if score is not None]
        return math.fsum(known) / len(known) if known and len(known) == len(scores) else None


@dataclass(frozen=True)
class Choice:
    """The trial that is best on validation data, the first of equals."""

    trial: Trial
    ties: int
    """Other trials that were as good."""
    edges: tuple[str, ...]
    """The settings for which the best value is the least or the largest that was tried."""


def choose(trials: Sequence[Trial]) -> Choice | None:
    """The best trial; None if there is none that neither failed nor diverged."""
    scored = [(trial.score, trial) for trial in trials if trial.score is not None]
    if not scored:
        return None
    most = max(score for score, _ in scored)
    best = [trial for score, trial in scored if score == most]
    return Choice(best[0], len(best) - 1, edges(best[0].settings, [trial.settings for trial in trials]))


def edges(chosen: Mapping[str, Any], grid: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The keys whose chosen number is the least or the largest of the grid, where better ones may lie outside."""
    found = []
    for key, value in chosen.items():
        tried = {settings[key] for settings in grid if _is_number(settings[key])}
        if _is_number(value) and len(tried) > 1 and value in (min(tried), max(tried)):
            found.append(key)
    return tuple(found)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
