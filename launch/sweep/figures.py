"""The figures of a sweep's table: for each cell the mean and standard deviation over seeds, beside the paper's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from launch.sweep.plan import Plan
from launch.sweep.reading import DIVERGED, DONE, Outcome
from launch.sweep.tuning import Choice
from pflsim.record.report import three_digits
from pflsim.sweep import Cell, in_words
from pflsim.sweep_file import Against, Row

NOTHING = "–"
COSTS: dict[Against, str] = {"bytes": "MB", "bytes_up": "MB up", "bytes_down": "MB down", "simulated_s": "simulated s"}
"""What `sweep.against` is called in tables."""


@dataclass(frozen=True)
class Figure:
    """What came of one cell."""

    cell: Cell
    outcomes: Mapping[int, Outcome | None]
    """By seed; None for a run that is not there yet."""
    choice: Choice | None
    is_tuned_out: bool
    """Whether all trials have ended and none of them well."""
    measure: str
    against: Against | None = None

    @property
    def values(self) -> dict[int, float]:
        """Per cent, by seed, of the runs that ended well."""
        found = {seed: outcome.measured(self.measure) for seed, outcome in self.outcomes.items() if outcome}
        return {seed: 100 * value for seed, value in found.items() if value is not None}

    @property
    def mean(self) -> float | None:
        """Over those seeds."""
        return fmean(self.values.values()) if self.values else None

    @property
    def costs(self) -> dict[int, float]:
        """What the same runs cost, by seed, as `sweep.against` has it; nothing without it."""
        if self.against is None:
            return {}
        found = {seed: outcome.cost(self.against) for seed, outcome in self.outcomes.items() if outcome}
        return {seed: cost for seed, cost in found.items() if cost is not None}

    @property
    def mean_cost(self) -> float | None:
        """Over those seeds."""
        return fmean(self.costs.values()) if self.costs else None

    @property
    def cost(self) -> str:
        """The same for the table."""
        return NOTHING if self.mean_cost is None else three_digits(self.mean_cost)

    @property
    def std(self) -> float | None:
        """Of the sample, divided by n - 1; None with fewer than two seeds."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in points."""
        return None if self.mean is None or self.cell.paper is None else self.mean - self.cell.paper

    @property
    def status(self) -> str:
        """`done`, or the worst that happened: `failed`, `refused`, `diverged`, `not run`."""
        if self.is_tuned_out:
            return "no trial ended well"
        found = [outcome.status if outcome else "not run" for outcome in self.outcomes.values()]
        return next((one for one in ("failed", "refused", DIVERGED, "not run") if one in found), DONE)

    def __str__(self) -> str:
        """`95.65 ± 0.12`, with how many seeds where some are missing, or why there is nothing."""
        if self.mean is None:
            return NOTHING if self.status == "not run" else self.status
        spread = "" if self.std is None else f" ± {self.std:.2f}"
        missing = "" if len(self.values) == len(self.outcomes) else f" ({len(self.values)}/{len(self.outcomes)})"
        return f"{self.mean:.2f}{spread}{missing}"


def figures(plan: Plan) -> dict[tuple[str, str], Figure]:
    """The figure of each cell, by row and column."""
    return {cell.at: _figure(plan, cell) for cell in plan.sweep.cells}


def _figure(plan: Plan, cell: Cell) -> Figure:
    runs, table = plan.reported(cell), plan.sweep.file.sweep
    outcomes = dict.fromkeys(plan.sweep.seeds) | {run.seed: plan.outcome(run) for run in runs or ()}
    return Figure(cell, outcomes, plan.choice(cell), runs == [], table.measure, table.against)


def row_name(row: Row) -> str:
    """As the table has it: another reading stands below the row that it reads differently."""
    return f"↳ {row.name}" if row.reading_of else row.name


def signed(points: float | None) -> str:
    """A difference in points, with its sign."""
    return "" if points is None else f"{points:+.2f}"


def column_table(own: Sequence[Figure]) -> tuple[list[str], list[list[str]]]:
    """The heading and the rows of one column's table: only what some method has something of."""
    paper = any(figure.cell.paper is not None for figure in own)
    chosen = any(figure.choice for figure in own)
    noted = any(figure.cell.row.note for figure in own)
    against = [COSTS[own[0].against]] if own and own[0].against else []
    head = ["method", "%", *(["paper", "diff."] * paper), *against, *(["chosen"] * chosen), *(["note"] * noted)]
    rows = []
    for figure in own:
        published = NOTHING if figure.cell.paper is None else f"{figure.cell.paper:.2f}"
        row = [row_name(figure.cell.row), str(figure), *([published, signed(figure.difference)] * paper)]
        row += [figure.cost] * len(against)
        row += [in_words(figure.choice.trial.settings) if figure.choice else ""] * chosen
        rows.append(row + [figure.cell.row.note] * noted)
    return head, rows


WORDS = ("method", "chosen", "note")
"""Columns of it that are no numbers."""


def how_it_was_made(plan: Plan) -> list[str]:
    """What must be known to read the table."""
    table, tuning = plan.sweep.file.sweep, plan.sweep.file.tuning
    measure = {
        "weighted": "test samples of all clients that were classified correctly",
        "mean": "mean over clients of their test accuracy",
        "worst_decile": "mean test accuracy of the worst tenth of clients",
    }[table.measure]
    when = "after the last round" if table.report == "last" else "after the round that is best on validation data"
    seeds = f"seed{'s' if len(table.seeds) > 1 else ''} {', '.join(map(str, table.seeds))}"
    said = [f"{measure}, %, {when}; mean ± standard deviation (n - 1) over {seeds}"]
    if table.against:
        what = "simulated time" if table.against == "simulated_s" else "payload that the method sent"
        said.append(f"{COSTS[table.against]}: {what}, of a whole run, all clients together; mean over seeds")
    tuned = [row for row in plan.sweep.rows if row.tune]
    if tuned:
        trials = max(len(cell.trials) for cell in plan.sweep.cells)
        names = f"seed{'s' if len(tuning.seeds) > 1 else ''} {', '.join(map(str, tuning.seeds))}"
        share = f"{100 * tuning.validation:g} %" if tuning.folds is None else f"each of {tuning.folds} folds"
        on = f"on {share} of the training parts, {names}"
        said.append(f"tuned {on}, by cell, {trials} trials each: {', '.join(row.name for row in tuned)}")
        others = [row.name for row in plan.sweep.rows if not row.tune]
        said += [f"not tuned: {', '.join(others)}"] if others else []
    return said


def trials_in_words(plan: Plan) -> list[str]:
    """Every trial of every cell on one line, with what was chosen, and whether it lies on the edge of the grid."""
    lines = []
    for cell in plan.sweep.cells:
        if not cell.trials:
            continue
        choice = plan.choice(cell)
        said = []
        for trial in plan.tried(cell):
            bad = [outcome.status for outcome in trial.outcomes.values() if outcome.status != DONE]
            score = f"{100 * trial.score:.2f}" if trial.score is not None else bad[0]
            star = "*" if choice and trial.settings == choice.trial.settings else ""
            said.append(f"{in_words(trial.settings)} {score}{star}")
        edge = f"; best on the edge of the grid: {', '.join(choice.edges)}" if choice and choice.edges else ""
        ties = f"; {choice.ties} more as good, the first is taken" if choice and choice.ties else ""
        lines.append(f"{cell.name}: {'; '.join(said)}{edge}{ties}")
    return lines


def what_went_wrong(plan: Plan) -> list[str]:
    """A line for each run that failed, was refused or diverged."""
    lines = []
    for cell in plan.sweep.cells:
        for run in [*plan.trials(cell), *(plan.reported(cell) or ())]:
            outcome = plan.outcome(run)
            if outcome is not None and outcome.status != DONE:
                lines.append(f"{outcome.status}: {run.label}: {outcome.reason}")
    return lines


def warnings_in_words(plan: Plan) -> list[str]:
    """What the reported runs warned of, each once, with the rows that it came from."""
    told: dict[str, dict[str, None]] = {}
    for cell in plan.sweep.cells:
        for run in plan.reported(cell) or ():
            outcome = plan.outcome(run)
            for warning in (outcome.summary or {}).get("warnings", []) if outcome else ():
                told.setdefault(str(warning), {})[cell.row.name] = None
    return [f"warning: {', '.join(rows)}: {warning}" for warning, rows in told.items()]


def is_whole(found: Mapping[tuple[str, str], Figure]) -> bool:
    """Whether every cell has the figure of every seed."""
    return all(figure.status == DONE and math.isfinite(figure.mean or math.nan) for figure in found.values())
