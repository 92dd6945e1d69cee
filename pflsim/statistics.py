"""What may be said of methods that were run with a few seeds each: differences on the same seeds, and their intervals.

The unit is the seed: a run is one number. Clients of one run share a model and a draw of the data, so that no test is
made across them. Differences are paired, for methods with the same seed see the same partition, cohorts and delays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

LEAST_FOR_RANKS = 6
"""With 5 seeds a signed-rank test cannot give less than 0.0625, however the methods differ."""
ENOUGH = 5
"""With fewer seeds than that, an interval says little, and who prints it says so."""


@dataclass(frozen=True)
class Spread:
    """Numbers of several seeds: their mean, and their standard deviation divided by n - 1."""

    n: int
    mean: float  # nan of none
    std: float  # nan of fewer than two


def spread(values: Sequence[float]) -> Spread:
    """The spread of some numbers."""
    mean = math.fsum(values) / len(values) if values else math.nan
    std = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return Spread(len(values), mean, std)


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences over common seeds, with its t interval."""

    n: int
    mean: float
    low: float  # nan, as all that follows, with fewer than two seeds
    high: float
    p_value: float  # of a two-sided paired t test
    rank_p_value: float | None  # of Wilcoxon's signed-rank test; None with fewer than six seeds

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside of the interval."""
        return self.low > 0 or self.high < 0


def paired_difference(
    ours: Mapping[Any, float], theirs: Mapping[Any, float], confidence: float = 0.95
) -> Difference | None:
    """`ours` less `theirs`, each by seed, over the seeds that both have; None if there is none."""
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        return None
    differences = np.array([ours[seed] - theirs[seed] for seed in common])
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return Difference(n, mean, math.nan, math.nan, math.nan, None)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    if error == 0 and mean == 0:  # as for a method beside itself
        return Difference(n, mean, mean, mean, 1.0, _rank_p_value(differences))
    if error == 0:  # equal by chance, as a few test samples can be: how much it varies is not known
        return Difference(n, mean, math.nan, math.nan, math.nan, _rank_p_value(differences))
    half = error * float(stats.t.ppf((1 + confidence) / 2, n - 1))
    p_value = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    return Difference(n, mean, mean - half, mean + half, p_value, _rank_p_value(differences))


def _rank_p_value(differences: np.ndarray) -> float | None:
    if len(differences) < LEAST_FOR_RANKS:
        return None
    if not differences.any():
        return 1.0
    return float(stats.wilcoxon(differences, zero_method="wilcox", method="auto").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values adjusted for their number by Holm's step-down method (1979), in the order given.

    A nan, a comparison that could not be made, stays one and does not count.
    """
    known = sorted((p_value, place) for place, p_value in enumerate(p_values) if not math.isnan(p_value))
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, (p_value, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p_value))
        adjusted[place] = largest
    return adjusted


@dataclass(frozen=True)
class Censored:
    """What several runs needed to reach something that some of them never reached."""

    reached: int
    n: int
    median: float | None  # None if half of the runs or more never reached it, or none was there

    def __str__(self) -> str:
        return f"{self.reached} of {self.n}"


def censored(needed: Sequence[float | None]) -> Censored:
    """The median of what runs needed, None for one that never got there, which counts as longer than any number.

    Of an even number of runs it is the mean of the two in the middle, if both got there.
    """
    found = sorted(math.inf if one is None else one for one in needed)
    if not found:
        return Censored(0, 0, None)
    middle = (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2
    return Censored(sum(map(math.isfinite, found)), len(found), middle if math.isfinite(middle) else None)
