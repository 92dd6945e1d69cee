"""`pflsim export`: the tables of a record and the summary for other programs, in their formats."""

import csv
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.finished import FinishedRun
from launch.screen import fitted
from launch.trackers import TRACKING_URI, Tables, Writer, mlflow, mlflow_at, needed, tensorboard, wandb
from pflsim.errors import DescriptionError
from pflsim.record.flat import NAMES, flat
from pflsim.record.result import Result


def export(directory: Path, kind: str, out: Path | None) -> None:
    """Write the run in `directory` into `out` (None: into a folder `directory`/KIND), and print what came of it.

    Without `out`, MLFLOW_TRACKING_URI may name a server of MLflow's instead. Raises DescriptionError where a program is
    missing, or the folder is there already or cannot be made.
    """
    run = FinishedRun(directory)
    if run.reservation:
        print(fitted(run.reservation))
    try:
        result = Result.open(directory)
    except FileNotFoundError as problem:
        raise DescriptionError("DIR", str(directory), str(problem)) from problem
    server = os.environ.get(TRACKING_URI) if kind == "mlflow" and out is None else None
    folder = out or directory / kind
    if server:
        write = mlflow_at(server)
    else:
        write = WRITERS[kind]()
        _make(folder)
    with run.reader:
        tables = {name: flat(run.reader, result.summary, name) for name in NAMES}
    try:
        write(folder, {name: table for name, table in tables.items() if table.rows}, result)
    except BaseException:
        if not server:
            shutil.rmtree(folder, ignore_errors=True)  # whole or not at all, so that it can be tried again
        raise
    print(f"exported: {server or folder}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except FileExistsError as problem:
        raise DescriptionError("--out", str(folder), "exists already; name a folder that does not") from problem
    except OSError as problem:
        raise DescriptionError("--out", str(folder), f"cannot be made: {problem.strerror}") from problem


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
    arrow, parquet = needed("pyarrow", "parquet"), needed("pyarrow.parquet", "parquet")
    kinds = {"INTEGER": arrow.int64(), "REAL": arrow.float64(), "TEXT": arrow.string()}

    def write(folder: Path, tables: Tables, _: Result) -> None:
        for name, table in tables.items():
            schema = arrow.schema([(column, kinds[kind]) for column, kind in table.columns.items()])
            parquet.write_table(arrow.Table.from_pylist(table.rows, schema=schema), folder / f"{name}.parquet")

    return write


WRITERS: dict[str, Callable[[], Writer]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
}


def _finite(value: Any) -> Any:
    """What JSON can hold: null for what is no finite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
