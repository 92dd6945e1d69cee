"""The file of a sweep: its tables, with what they may say, and what is wrong with one that can be seen in it alone."""

import difflib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from pflsim.errors import DescriptionError
from pflsim.spec import Table, first_problem, read
from pflsim.values import plain

Settings = dict[str, Any]
"""Values by dotted key, such as `training.step_size`."""
Values = Annotated[tuple[Any, ...], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0)]
_NONE: Any = Field(default_factory=dict)
Report = Literal["last", "validation"]
Measure = Literal["weighted", "mean", "worst_decile"]
Against = Literal["bytes", "bytes_up", "bytes_down", "simulated_s"]


class SweepTable(Table):
    """`[sweep]`."""

    name: Annotated[str, Field(max_length=100, pattern=r"^[\w.-]+$")] = "sweep"
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (1, 2, 3)
    base: str | None = None
    """Another description's file, seen from the folder of this one; `[base]` says what is different."""
    out: str | None = None
    report: Report = "last"
    """Whether test is read after the last round, or after the one that validation chooses; never after its best."""
    measure: Measure = "weighted"
    """Over all test samples, the mean over clients, or that of the worst tenth of them."""
    against: Against | None = None
    """What the runs cost, which the table then has too, and against which the page draws accuracy."""


class Column(Table):
    """`[[column]]`: a setting of the study."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    set: Settings = _NONE


class Row(Table):
    """`[[row]]`: a method or a variant of one."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    algorithm: Settings | None = None
    set: Settings = _NONE
    per_column: dict[str, Settings] = _NONE
    """Further settings, by column."""
    paper: dict[str, float | Annotated[tuple[float, ...], Field(min_length=1)]] = _NONE
    """The published figures in per cent, by column; a list has one for each combination of `[grid]`."""
    note: str = ""
    reading_of: str | None = None
    """The row, above this one, of which this is another reading."""
    columns: tuple[str, ...] | None = None
    model: str | None = None
    """The evaluated model that is read; by default the headline model."""
    tune: dict[str, Values] = _NONE


class Tuning(Table):
    """`[tuning]`: on what the trials of tuned rows are run."""

    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (101,)
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The share of each training part on which the trials are compared."""
    folds: Annotated[int, Field(ge=2, le=100)] | None = None
    """Or so many shares, each of which is set aside once."""

    @property
    def splits(self) -> tuple[Settings, ...]:
        """What a trial sets aside, in turn."""
        if self.folds is None:
            return ({"data.validation": self.validation},)
        return tuple({"data.validation": 1 / self.folds, "data.validation_part": part} for part in range(self.folds))


class SweepFile(Table):
    """A whole sweep file."""

    sweep: SweepTable = SweepTable()
    base: Settings = _NONE
    column: tuple[Column, ...] = ()
    row: tuple[Row, ...] = ()
    grid: dict[str, Values] = _NONE
    tuning: Tuning = Tuning()


def sweep_file(tables: Mapping[str, Any], name: str, folder: Path) -> SweepFile:
    """The file that `tables` make, with what its base's file, looked for in `folder`, says written into it.

    Raises DescriptionError, with rows and columns by their names.
    """
    file = _with_base(_validated(tables), name, folder)
    _check_names(file)
    return file


def _validated(tables: Mapping[str, Any]) -> SweepFile:
    try:
        return SweepFile.model_validate_json(json.dumps(plain(tables)), strict=True)
    except pydantic.ValidationError as problem:
        found = first_problem(problem, SweepFile)
        raise DescriptionError(_named_by_their_names(found.key, tables), found.value, found.expected) from None


def _named_by_their_names(key: str, tables: Mapping[str, Any]) -> str:
    """`row.1.sett` as `row "CGPFL".sett`: who reads a file does not count its rows."""
    table, *rest = key.split(".")
    if table in ("row", "column") and rest and rest[0].isdigit() and isinstance(tables.get(table), list):
        one = tables[table][int(rest[0])]
        if isinstance(one, Mapping) and isinstance(one.get("name"), str):
            return ".".join([f'{table} "{one["name"]}"', *rest[1:]])
    return key


def _with_base(file: SweepFile, name: str, folder: Path) -> SweepFile:
    """The file with what its base's file says written into it."""
    base = file.base
    if file.sweep.base is not None:
        base = _merged(read(folder / file.sweep.base), base)
    base = {key: value for key, value in base.items() if key not in ("beside", "versions")}
    own_name = file.sweep.name if "name" in file.sweep.model_fields_set else name
    table = file.sweep.model_copy(update={"base": None, "name": own_name})
    return file.model_copy(update={"base": base, "sweep": table})


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Settings:
    """`below` with what `above` says; what names a part replaces its table if it names another one."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and _is_same_part(old, value):
            merged[key] = _merged(old, value)
        else:
            merged[key] = value
    return merged


def _is_same_part(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return all(new.get(name, old.get(name)) == old.get(name) for name in ("name", "kind"))


def _check_names(file: SweepFile) -> None:
    require_different("column", [column.name for column in file.column])
    require_different("sweep.seeds", list(file.sweep.seeds))
    require_different("tuning.seeds", list(file.tuning.seeds))
    known = [column.name for column in file.column]
    above: list[str] = []
    for row in file.row:
        for key in ("columns", "paper", "per_column"):
            for name in getattr(row, key) or ():
                _require_known(f'row "{row.name}".{key}', name, known)
        if row.reading_of is not None and row.reading_of not in above:
            _require_known(f'row "{row.name}".reading_of', row.reading_of, above)
        above.append(row.name)
        if row.algorithm is not None:
            _refuse_what_would_be_lost(row, file.column)


def _refuse_what_would_be_lost(row: Row, columns: Sequence[Column]) -> None:
    for column in columns:
        for key in column.set:
            if key.split(".")[0] == "algorithm" and (row.columns is None or column.name in row.columns):
                reason = f'would be lost, as row "{row.name}" has an algorithm of its own: use its per_column'
                raise DescriptionError(f'column "{column.name}".set.{key}', column.set[key], reason)


def _require_known(key: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise DescriptionError(key, name, f"is none of {', '.join(known) or 'the names above'}{meant}")


def require_different(key: str, names: Sequence[object]) -> None:
    """Refuse a name, or a seed, that is there twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DescriptionError(key, twice[0], "is there twice: each needs a name of its own")
