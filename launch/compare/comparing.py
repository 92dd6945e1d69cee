"""The numbers of a comparison: each method over its seeds, what it needed, and its difference from a baseline.

Runs of different methods with the same seed are pairs if the record says that they had the same partition: then they
saw the same samples, cohorts, batches and delays. Otherwise no difference is told, and why.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launch.compare.gather import Run, Seed
from launch.sweep.reading import DONE, Outcome, read_test
from pflsim.errors import DescriptionError
from pflsim.record.accuracy import Accuracy, Point, point_at_target
from pflsim.statistics import Censored, Difference, Spread, censored, holm, paired_difference, spread

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Measured:
    """What one run came to."""

    accuracy: Accuracy
    partition: str
    simulated_s: float
    payload_bytes: int
    reached: Point | None
    """Where it first held the target."""


@dataclass(frozen=True)
class Line:
    """A method in a column: all its seeds, and its difference from the baseline."""

    column: str
    label: str
    by_seed: dict[Seed, Measured]
    is_baseline: bool = False
    difference: Difference | None = None
    """In points of a hundred."""
    why_none: str = ""
    holm_p: float = math.nan

    @property
    def differs(self) -> bool:
        """Whether 0 lies outside of the interval, and p, adjusted for the methods of the column, is below 0.05."""
        return self.difference is not None and self.difference.excludes_zero and self.holm_p < SIGNIFICANT

    def over_seeds(self, what: str) -> Spread:
        """One of the numbers of `Accuracy`, in per cent."""
        return spread([100 * float(getattr(run.accuracy, what)) for run in self.by_seed.values()])

    def percent(self) -> dict[Seed, float]:
        """The weighted accuracy in per cent, by seed."""
        return {seed: 100 * run.accuracy.weighted for seed, run in self.by_seed.items()}

    def needed(self, what: str) -> Censored:
        """The rounds, simulated seconds or bytes to the target, the median over seeds."""
        reached = [run.reached for run in self.by_seed.values()]
        return censored([None if point is None else float(getattr(point, what)) for point in reached])


@dataclass(frozen=True)
class Comparison:
    """All lines, column by column, and what is to be said of them."""

    lines: tuple[Line, ...]
    baseline: str
    target: float | None
    remarks: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """In their order."""
        return list(dict.fromkeys(line.column for line in self.lines))

    def of(self, column: str) -> list[Line]:
        """The lines of a column."""
        return [line for line in self.lines if line.column == column]


def compare(
    runs: Sequence[Run], baseline: str | None, target: float | None, left_out: Sequence[str] = ()
) -> Comparison:
    """The comparison of `runs` with `baseline` (by default the first method)."""
    lines, remarks = _lines(runs, target)
    if not lines:
        raise DescriptionError("DIR", "; ".join([*left_out, *remarks]), "leaves no finished run to be compared")
    labels = list(dict.fromkeys(line.label for line in lines))
    base = labels[0] if baseline is None else baseline
    if base not in labels:
        raise DescriptionError("--baseline", base, f"is none of the methods: {', '.join(labels)}")
    compared = beside_baseline(lines, base)
    remarks += [f"{line.label}{_in(line.column)}: {line.why_none}" for line in compared if line.why_none]
    told = [f"left out: {one}" for one in left_out]
    return Comparison(tuple(compared), base, target, (*told, *remarks))


def _lines(runs: Sequence[Run], target: float | None) -> tuple[list[Line], list[str]]:
    lines: dict[tuple[str, str], Line] = {}
    remarks = []
    for run in runs:
        outcome = read_test(run.result.directory, run.model, run.report)
        named = f"{run.label}{_in(run.column)}, {seed_in_words(run.seed)}"
        if outcome.status != DONE or outcome.accuracy is None:
            remarks.append(f"left out: {named}: {outcome.status}, {outcome.reason}")
            continue
        line = lines.setdefault((run.column, run.label), Line(run.column, run.label, {}))
        if run.seed in line.by_seed:
            remarks.append(f"left out: {named} is there twice; {run.result.directory} is not used")
            continue
        line.by_seed[run.seed] = _measured(run, outcome, outcome.accuracy, target)
        if lost := run.result.summary.get("lost"):
            remarks.append(
                f"warning: {named} has lost {', '.join(lost)}: its figures are of the clients that were left"
            )
    columns = list(dict.fromkeys(column for column, _ in lines))
    return [line for column in columns for line in lines.values() if line.column == column], remarks


def _measured(run: Run, outcome: Outcome, accuracy: Accuracy, target: float | None) -> Measured:
    traffic, time = run.result.summary["traffic"], run.result.summary["time"]
    reached = point_at_target(run.result.curve(outcome.model), target) if target is not None else None
    payload_bytes = sum(traffic[f"payload_bytes_{way}"] for way in ("up", "down", "peer"))
    return Measured(accuracy, run.partition, float(time["simulated_s"] or 0), payload_bytes, reached)


def beside_baseline(lines: Sequence[Line], baseline: str) -> list[Line]:
    """Each with its difference; the p values of a column's methods are adjusted together."""
    found = []
    for column in dict.fromkeys(line.column for line in lines):
        own = [line for line in lines if line.column == column]
        base = next((line for line in own if line.label == baseline), None)
        compared = [_beside(line, base) for line in own]
        adjusted = holm([line.difference.p_value if line.difference else math.nan for line in compared])
        found += [replace(line, holm_p=p_value) for line, p_value in zip(compared, adjusted, strict=True)]
    return found


def _beside(line: Line, base: Line | None) -> Line:
    if base is None or base.label == line.label:
        return replace(line, is_baseline=base is not None, why_none="" if base else "has no baseline here")
    common = line.by_seed.keys() & base.by_seed.keys()
    others = sorted(seed for seed in common if line.by_seed[seed].partition != base.by_seed[seed].partition)
    if others:
        which = ", ".join(map(seed_in_words, others))
        return replace(line, why_none=f"no difference is told, as the partition is not the baseline's ({which})")
    difference = paired_difference(line.percent(), base.percent())
    return replace(line, difference=difference, why_none="" if difference else "has no seed that the baseline has")


def _in(column: str) -> str:
    return f", {column}" if column else ""


def seed_in_words(seed: Seed) -> str:
    """`seed 3`, or the three of them where they differ."""
    return f"seed {seed[0]}" if len(set(seed)) == 1 else f"seeds {'/'.join(map(str, seed))}"
