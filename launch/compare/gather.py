"""Finds the runs in what a comparison is given: folders of runs, of sweeps, of several runs, and descriptions."""

import csv
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launch.comparison import run_all
from launch.sweep.cache import NOT_THE_RESULT
from pflsim.errors import DescriptionError
from pflsim.record.result import Result
from pflsim.spec import override_value, read
from pflsim.sweep import in_words
from pflsim.sweep_file import Report

Seed = tuple[int, int, int]
"""Of the data, the initial model, and training."""
_DONE, _NOT_RUN = "done", "not run"
_MOST_APART = 3
"""Runs that differ in more settings than that are told apart by a folder."""


@dataclass(frozen=True)
class Run:
    """A finished run, and how it is to be read."""

    result: Result
    label: str = ""
    """The method, as a sweep's row has it; "" as long as `labelled` has not found one."""
    column: str = ""
    model: str | None = None
    report: Report = "last"
    sweep: str = ""
    """The folder of the sweep that it is of."""

    @property
    def seed(self) -> Seed:
        """By which runs are paired."""
        seed = self.result.summary["seed"]
        return seed["data"], seed["init"], seed["train"]

    @property
    def partition(self) -> str:
        """The digest of who held which samples."""
        return str((self.result.summary.get("partition") or {}).get("digest"))


@dataclass
class Gathered:
    """The runs that are compared, and what was left out."""

    runs: list[Run] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def gather(places: Sequence[Path], seeds: Sequence[int] = ()) -> Gathered:
    """Everything in `places`; descriptions among them are run first, with each of `seeds` (by default their own).

    Raises DescriptionError for a place without a run.
    """
    found = Gathered()
    for place in places:
        before = len(found.runs) + len(found.left_out)
        if place.suffix == ".toml" and place.is_file():
            found.runs += [Run(result) for result in _run(place, seeds)]
        elif (place / "sweep.toml").exists() and (place / "runs.csv").exists():
            _take_sweep(place, found)
        else:
            for folder in _folders(place):
                _take(folder, found)
        if len(found.runs) + len(found.left_out) == before:
            raise DescriptionError("DIR", str(place), "holds no run: name results folders, or descriptions to be run")
    found.runs = labelled(_each_once(found.runs))
    return found


def _run(description: Path, seeds: Sequence[int]) -> Iterator[Result]:
    tables = read(description)
    tables["run"] = {"name": description.stem} | dict(tables.get("run", {}))
    for seed in seeds or (None,):
        yield from run_all(tables if seed is None else override_value(tables, "run.seed", seed))


def _folders(place: Path) -> list[Path]:
    """The folder of a run with those of the methods beside it, or the runs inside of a folder."""
    if not (place / "summary.json").exists():
        return sorted(path.parent for path in place.glob("*/summary.json"))
    own = Result.open(place).summary
    beside = []
    for folder in sorted(place.parent.glob(f"{place.name}-*")):
        if (folder / "summary.json").exists():
            other = Result.open(folder).summary
            if all(other.get(key) == own.get(key) for key in ("seed", "partition", "model", "clients")):
                beside.append(folder)
    return [place, *beside]


def _take(folder: Path, found: Gathered) -> None:
    result = Result.open(folder)
    if result.summary.get("status") == _DONE:
        found.runs.append(Run(result))
    else:
        found.left_out.append(f"{folder}: {result.summary.get('status')}")


def _take_sweep(place: Path, found: Gathered) -> None:
    report = read(place / "sweep.toml").get("sweep", {}).get("report", "last")
    not_run, missing = 0, defaultdict[tuple[str, str, str], list[str]](list)
    with (place / "runs.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["status"] == _DONE:
                result = Result.open(place / row["folder"])
                found.runs.append(Run(result, row["row"], row["column"], row["model"], report, place.name))
            elif row["status"] == _NOT_RUN:
                not_run += 1
            else:
                missing[row["row"], row["column"], row["status"]].append(row["seed"])
    for (name, column, status), seeds in missing.items():
        found.left_out.append(f"{name}, {column}, seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {status}")
    if not_run:
        found.left_out.append(f"{not_run} runs of {place} that were not run yet")


def _each_once(runs: Sequence[Run]) -> list[Run]:
    return list({(run.result.directory.resolve(), run.label, run.column, run.model): run for run in runs}.values())


def labelled(runs: Sequence[Run]) -> list[Run]:
    """Runs with the same description but for their seeds get the same label: the method, and what sets it apart.

    Where that is much, it is the folder of the first of them instead.
    """
    tables = {run.result.directory: _flat(_method(run.result)) for run in runs if not run.label}
    kin: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        if not run.label:
            kin[str(run.result.summary["algorithm"])].append(tables[run.result.directory])
    named: list[Run] = []
    first_of: dict[str, str] = {}
    sweeps: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        sweeps[run.label].add(run.sweep)
    for run in runs:
        if run.label:  # a row of a sweep; that of another one may be another method
            named.append(replace(run, label=f"{run.label} ({run.sweep})") if len(sweeps[run.label]) > 1 else run)
            continue
        name, own = str(run.result.summary["algorithm"]), tables[run.result.directory]
        apart = {key: value for key, value in own.items() if any(other.get(key) != value for other in kin[name])}
        if len(apart) > _MOST_APART:
            method = json.dumps([name, own])
            if method not in first_of:
                first_of[method] = _told_apart(run.result.directory, first_of.values())
            label = f"{name} ({first_of[method]})"
        else:
            label = ", ".join(part for part in (name, in_words(apart)) if part)
        named.append(replace(run, label=label))
    return named


def _told_apart(folder: Path, others: Collection[str]) -> str:
    """A folder's name, with those of as many folders above it as are needed to tell it from `others`."""
    parts = folder.resolve().parts
    tails = ("/".join(parts[-count:]) for count in range(1, len(parts)))
    return next((tail for tail in tails if tail not in others), str(folder))


def _method(result: Result) -> dict[str, Any]:
    """What was run, without what changes nothing or only the seed."""
    tables = read(result.directory / "run.toml")
    kept = {key: value for key, value in tables.items() if key not in ("versions", "record", "beside")}
    run, data = dict(kept.get("run", {})), dict(kept.get("data", {}))
    left_out = ("seed", *NOT_THE_RESULT)
    data.pop("dir", None)
    return kept | {"data": data, "run": {key: value for key, value in run.items() if key not in left_out}}


def _flat(tables: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Values by dotted key; lists as they stand in JSON."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{at}{key}.")
        else:
            flat[f"{at}{key}"] = json.dumps(value) if isinstance(value, list) else value
    return flat
