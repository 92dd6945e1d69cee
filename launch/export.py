"""`pflsim export`: the tables of a record and the summary for other programs, in their formats."""

import csv
import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from launch.finished import FinishedRun
from launch.screen import fitted
from pflsim.errors import DescriptionError
from pflsim.record.flat import NAMES, Flat, flat
from pflsim.record.result import Result


def export(directory: Path, kind: str, out: Path | None) -> None:
    """Write the run in `directory` into `out` (None: into a folder `directory`/KIND), and print what came of it.

    Raises DescriptionError where a program is missing, or the folder is there already.
    """
    run = FinishedRun(directory)
    if run.reservation:
        print(fitted(run.reservation))
    try:
        result = Result.open(directory)
    except FileNotFoundError as problem:
        raise DescriptionError("DIR", str(directory), str(problem)) from problem
    write = WRITERS[kind]()
    folder = out or directory / kind
    try:
        folder.mkdir(parents=True)
    except FileExistsError as problem:
        raise DescriptionError("--out", str(folder), "exists already; name a folder that does not") from problem
    with run.reader:
        tables = {name: flat(run.reader, result.summary, name) for name in NAMES}
    write(folder, {name: table for name, table in tables.items() if table.rows}, result)
    print(f"exported: {folder}")


Tables = dict[str, Flat]
Writer = Callable[[Path, Tables, Result], None]


def _csv() -> Writer:
    def write(folder: Path, tables: Tables, _: Result) -> None:
        for name, table in tables.items():
            with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                rows = csv.DictWriter(file, table.columns, lineterminator="\n", extrasaction="ignore")
                rows.writeheader()
                rows.writerows(table.rows)

    return write


def _json() -> Writer:
    def write(folder: Path, tables: Tables, result: Result) -> None:
        for name, table in tables.items():
            if name != "summary":
                plain = [{column: _finite(row[column]) for column in table.columns} for row in table.rows]
                (folder / f"{name}.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")
        summary = json.dumps(result.summary, indent=2)
        (folder / "summary.json").write_text(summary, encoding="utf-8")

    return write


def _parquet() -> Writer:
    arrow, parquet = _needed("pyarrow", "parquet"), _needed("pyarrow.parquet", "parquet")
    kinds = {"INTEGER": arrow.int64(), "REAL": arrow.float64(), "TEXT": arrow.string()}

    def write(folder: Path, tables: Tables, _: Result) -> None:
        for name, table in tables.items():
            schema = arrow.schema([(column, kinds[kind]) for column, kind in table.columns.items()])
            parquet.write_table(arrow.Table.from_pylist(table.rows, schema=schema), folder / f"{name}.parquet")

    return write


def _tensorboard() -> Writer:
    """Accuracy and loss over rounds, each at its simulated time: "relative" then shows simulated time."""
    _needed("tensorboard", "tensorboard")
    board = importlib.import_module("torch.utils.tensorboard")

    def write(folder: Path, tables: Tables, _: Result) -> None:
        with board.SummaryWriter(str(folder)) as events:
            for point in tables["curve"].rows if "curve" in tables else []:
                at, step, time_s = f"{point['split']}/{point['model']}", point["round"], point["simulated_s"]
                for what in ("weighted", "mean", "worst_decile", "loss"):
                    if math.isfinite(point[what]):
                        events.add_scalar(f"{what}/{at}", point[what], step, walltime=time_s)
                events.add_scalar("payload_bytes", point["payload_bytes"], step, walltime=time_s)

    return write


WRITERS: dict[str, Callable[[], Writer]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "tensorboard": _tensorboard,
}


def _needed(module: str, extra: str) -> ModuleType | Any:
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        package = module.partition(".")[0]
        expected = f"needs {package}, which is not installed: pip install 'pflsim[{extra}]'"
        raise DescriptionError("--format", extra, expected) from problem


def _finite(value: Any) -> Any:
    """What JSON can hold: null for what is no finite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
