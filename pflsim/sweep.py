"""A sweep: many run descriptions from one file, as the cells of a table of rows and columns.

A column is a setting of the study, a row a method; where they meet, a description is run with each of the seeds. A row
may be tuned: each combination of its `tune` lists is a trial on other seeds and on validation data. Everything is
refused here, before anything runs: what is no key, what cannot be run, seeds that are tuned on and reported, and
methods that would be given different numbers of trials.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pflsim import catalogue
from pflsim.effective import effective
from pflsim.errors import DescriptionError
from pflsim.spec import Description, override, override_value, read, validate
from pflsim.sweep_file import Column, Row, Settings, SweepFile, require_different, sweep_file

_RECORD = {"spans": False, "plot": False, "report": False, "consensus": False}
"""What a run of a sweep does not keep in its record, unless the description asks for it."""
_MOST_RUNS = 100_000


@dataclass(frozen=True)
class Cell:
    """Where a row meets a column: a description that lacks a seed, and how its settings are chosen."""

    row: Row
    column: str
    tables: Settings
    trials: tuple[Settings, ...]
    """The settings to choose from; none where the row is not tuned."""
    paper: float | None
    """The published figure, in per cent."""

    @property
    def at(self) -> tuple[str, str]:
        """Its row and its column."""
        return self.row.name, self.column

    @property
    def name(self) -> str:
        """For progress and failures."""
        return f"{self.row.name}, {self.column}"

    def described(self, seed: int, settings: Mapping[str, Any] | None = None) -> Description:
        """The run with `seed` and with what tuning chose."""
        return validate(self._with({"run.seed": seed} | dict(settings or {})))

    def trial(self, seed: int, settings: Mapping[str, Any], split: Settings) -> Description:
        """A trial of `settings`, with one of `Tuning.splits` of the training part for validation."""
        return validate(self._with({"run.seed": seed} | split | dict(settings)))

    def _with(self, settings: Mapping[str, Any]) -> Settings:
        tables = self.tables
        for key, value in settings.items():
            tables = override_value(tables, key, value)
        return tables


@dataclass(frozen=True)
class Sweep:
    """A sweep whose every description is valid."""

    file: SweepFile
    """With the base's own file read in: what is written beside the results, to be run again."""
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """What the results folder is called."""
        return self.file.sweep.name

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those of the reported runs."""
        return self.file.sweep.seeds

    def cell(self, row: str, column: str) -> Cell | None:
        """The cell in a row and a column, if there is one."""
        return next((one for one in self.cells if one.at == (row, column)), None)


def read_sweep(path: Path, assignments: Sequence[str] = ()) -> Sweep:
    """The sweep that a file describes, with `KEY=VALUE`s applied to it; DescriptionError if it is wrong."""
    tables = read(path)
    if "algorithm" in tables:
        reason = "is the description of one run: `pflsim run` runs it, and a sweep can have it as its sweep.base"
        raise DescriptionError("file", str(path), reason)
    for assignment in assignments:
        tables = override(tables, assignment)
    return made_sweep(tables, path.stem, path.parent)


def made_sweep(tables: Mapping[str, Any], name: str = "sweep", folder: Path = Path()) -> Sweep:
    """The sweep of `tables`; a base's file is looked for in `folder`."""
    file = sweep_file(tables, name, folder)
    columns = file.column or (Column(name=_setting_in_words(file.base)),)
    rows = tuple(row for one in file.row or (Row(name="base"),) for row, _ in _expanded(one, file))
    require_different("row", [row.name for row in rows])
    cells = tuple(
        _cell(file, row, column, combination)
        for one in file.row or (Row(name="base"),)
        for row, combination in _expanded(one, file)
        for column in columns
        if row.columns is None or column.name in row.columns
    )
    sweep = Sweep(file, rows, tuple(column.name for column in columns), cells)
    _check_tuning(sweep)
    _check_cells(sweep)
    return sweep


def _expanded(row: Row, file: SweepFile) -> Iterator[tuple[Row, Settings]]:
    """A row for each combination of `[grid]`, with the settings of that combination."""
    combinations = list(_product(file.grid))
    for column, figures in row.paper.items():
        count = len(figures) if isinstance(figures, tuple) else 1
        if (isinstance(figures, tuple) or file.grid) and count != len(combinations):
            reason = f"must be a list of {len(combinations)} figures, one for each combination of [grid]"
            raise DescriptionError(f'row "{row.name}".paper.{column}', figures, reason)
    for number, combination in enumerate(combinations):
        paper = {
            column: figures[number] if isinstance(figures, tuple) else figures for column, figures in row.paper.items()
        }
        named = ", ".join(part for part in (row.name if file.row else "", in_words(combination)) if part)
        yield row.model_copy(update={"name": named or row.name, "paper": paper}), combination


def _product(lists: Mapping[str, Sequence[Any]]) -> Iterator[Settings]:
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings on one line, by the last part of each key where that is enough: `lam=11, step_size=0.01`."""
    lasts = Counter(key.split(".")[-1] for key in settings)
    return ", ".join(
        f"{key.split('.')[-1] if lasts[key.split('.')[-1]] == 1 else key}={_value(value)}"
        for key, value in settings.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        name = value.get("name", value.get("kind"))
        others = [f"{key}={_value(inner)}" for key, inner in value.items() if key not in ("name", "kind")]
        return f"{name or ''}{'(' + ' '.join(others) + ')' if others else ''}"
    return value if isinstance(value, str) else json.dumps(value)


def _setting_in_words(base: Mapping[str, Any]) -> str:
    parts = [base.get(key, {}).get("name") for key in ("data", "model") if isinstance(base.get(key), Mapping)]
    return " ".join(part for part in parts if isinstance(part, str)) or "base"


def _cell(file: SweepFile, row: Row, column: Column, combination: Settings) -> Cell:
    tables = {**file.base}
    if row.algorithm is not None:
        tables["algorithm"] = row.algorithm
    try:
        for settings in (column.set, row.set, row.per_column.get(column.name, {}), combination):
            for key, value in settings.items():
                tables = override_value(tables, key, value)
    except DescriptionError as problem:
        raise told_at(row.name, column.name, problem) from problem
    record = tables.get("record", {})
    tables["record"] = {**_RECORD, **record} if isinstance(record, Mapping) else record
    figure = row.paper.get(column.name)
    assert not isinstance(figure, tuple)
    return Cell(row, column.name, tables, tuple(_product(row.tune)) if row.tune else (), figure)


def told_at(
    row: str, column: str, problem: DescriptionError, settings: Mapping[str, Any] | None = None
) -> DescriptionError:
    """The same problem, named by the cell that has it, and by the trial."""
    tried = f", tuned to {in_words(settings)}" if settings else ""
    return DescriptionError(f'row "{row}", column "{column}"{tried}: {problem.key}', problem.value, problem.expected)


def _check_tuning(sweep: Sweep) -> None:
    counts = {row.name: len(list(_product(row.tune))) for row in sweep.rows if row.tune}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name}: {count}" for name, count in counts.items())
        reason = "the same number of trials is due to every row that is tuned"
        raise DescriptionError("row.tune", told, reason)
    tuning = sweep.file.tuning
    both = sorted(set(sweep.seeds) & set(tuning.seeds))
    if both and (counts or "seeds" in tuning.model_fields_set):
        raise DescriptionError("tuning.seeds", both, "is in sweep.seeds too: what is tuned on must not be reported")
    if tuning.folds is not None and "validation" in tuning.model_fields_set:
        raise DescriptionError("tuning.folds", tuning.folds, "stands instead of tuning.validation: give one of the two")
    for row in sweep.rows:
        _refuse_keys_of_the_sweep(row)


def _refuse_keys_of_the_sweep(row: Row) -> None:
    for key in row.tune:
        if key.split(".")[0] == "run" or key in ("data.validation", "data.validation_part", "beside"):
            reason = "cannot be tuned: it says what is run and how it is judged, not how a method works"
            raise DescriptionError(f'row "{row.name}".tune', key, reason)


def _check_cells(sweep: Sweep) -> None:
    """Every description that is going to be run, but for seeds, which change nothing about that."""
    runs = sum(max(1, len(cell.trials)) for cell in sweep.cells)
    if runs > _MOST_RUNS:
        raise DescriptionError("sweep", runs, f"is more than {_MOST_RUNS} runs for each seed")
    tuning = sweep.file.tuning
    for cell in sweep.cells:
        for settings in cell.trials or ({},):
            try:
                reported = cell.described(sweep.seeds[0], settings)
                _check(reported)
                _require_validation(sweep, reported)
                if cell.trials:
                    _check(cell.trial(tuning.seeds[0], settings, tuning.splits[-1]))
            except DescriptionError as problem:
                raise told_at(*cell.at, problem, settings) from problem


def _check(description: Description) -> None:
    """As far as can be without its data: the parts that it names, and their settings."""
    effective(description)
    algorithm, schedule = description.algorithm, description.schedule
    for room, name, settings, key in (
        ("algorithms", algorithm.name, algorithm.settings, "algorithm"),
        ("schedules", schedule.kind, schedule.settings, "schedule"),
    ):
        catalogue.validated(catalogue.find(room, name, key), settings, key)


def _require_validation(sweep: Sweep, reported: Description) -> None:
    validation = reported.data.settings.get("validation", 0)
    if sweep.file.sweep.report == "validation" and not validation:
        reason = 'must be above 0, as sweep.report = "validation" reads test at the round that validation chooses'
        raise DescriptionError("data.validation", validation, reason)
