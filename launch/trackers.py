"""Finished runs for experiment trackers: TensorBoard, MLflow, and Weights & Biases, each through its own client.

A step is a round. Steps have simulated time, so that what a tracker calls relative time is that.
"""

import importlib
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any, NamedTuple

from pflsim.errors import DescriptionError
from pflsim.record.flat import Flat, leaves
from pflsim.record.result import Result
from pflsim.spec import read

Json = dict[str, Any]
Tables = dict[str, Flat]
Writer = Callable[[Path, Tables, Result], None]

TRACKING_URI, MODE = "MLFLOW_TRACKING_URI", "WANDB_MODE"
_PROJECT = "pflsim"
_FILES = ("run.toml", "summary.json", "report.html")
_MOST_AT_ONCE = 100
_LONGEST = 5000
"""Letters of a text; MLflow takes no longer ones."""


class Told(NamedTuple):
    """One number of the course of accuracy."""

    name: str
    value: float
    round: int
    simulated_s: float


def course(tables: Tables) -> Iterator[Told]:
    """Accuracy and loss of each model on each part of the data, and the payload, evaluation by evaluation."""
    for point in tables["curve"].rows if "curve" in tables else []:
        at, step, time_s = f"{point['split']}/{point['model']}", point["round"], point["simulated_s"]
        for what in ("weighted", "mean", "worst_decile", "loss"):
            if math.isfinite(point[what]):
                yield Told(f"{what}/{at}", point[what], step, time_s)
        yield Told("payload_bytes", point["payload_bytes"], step, time_s)


def tensorboard() -> Writer:
    """Writes events."""
    needed("tensorboard", "tensorboard")
    board = importlib.import_module("torch.utils.tensorboard")

    def write(folder: Path, tables: Tables, _: Result) -> None:
        with board.SummaryWriter(str(folder)) as events:
            for told in course(tables):
                events.add_scalar(told.name, told.value, told.round, walltime=told.simulated_s)

    return write


def mlflow() -> Writer:
    """Writes MLflow's database and its files into the folder."""
    for module in ("mlflow.tracking", "sqlalchemy", "alembic"):
        needed(module, "mlflow")

    def write(folder: Path, tables: Tables, result: Result) -> None:
        uri = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        _log(uri, {"artifact_location": (folder / "artifacts").resolve().as_uri()}, tables, result)
        print(f"to see it: mlflow ui --backend-store-uri {quote(uri)}")

    return write


def mlflow_at(server: str) -> Writer:
    """Sends to MLflow's server, as MLFLOW_TRACKING_URI has it."""
    needed("mlflow.tracking", "mlflow")
    return lambda _, tables, result: _log(server, {}, tables, result)


def _log(uri: str, files: Json, tables: Tables, result: Result) -> None:
    """Make a run in the experiment "pflsim", with all that is known of ours."""
    problems = importlib.import_module("mlflow.exceptions").MlflowException
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of MLflow's own calls
        try:
            client = needed("mlflow.tracking", "mlflow").MlflowClient(tracking_uri=uri, registry_uri=uri)
            known = client.get_experiment_by_name(_PROJECT)
            experiment = known.experiment_id if known else client.create_experiment(_PROJECT, **files)
            run = client.create_run(experiment, start_time=0, run_name=result.directory.resolve().name).info.run_id
            for what, values in _entities(tables, result).items():
                for start in range(0, len(values), _MOST_AT_ONCE):
                    client.log_batch(run, **{what: values[start : start + _MOST_AT_ONCE]})
            for file in _FILES:
                if (result.directory / file).exists():
                    client.log_artifact(run, str(result.directory / file))
            client.set_terminated(run, end_time=_end_ms(result))
        except problems as problem:
            raise DescriptionError(TRACKING_URI, uri, f"cannot be written to: {_first_line(problem)}") from problem


def _entities(tables: Tables, result: Result) -> dict[str, list[Any]]:
    """What MLflow calls metrics, parameters and tags: the course and numbers, the description, and texts."""
    made = importlib.import_module("mlflow.entities")
    numbers, texts = _summary(result)
    metrics = [
        made.Metric(_safe(told.name), told.value, round(1000 * told.simulated_s), told.round) for told in course(tables)
    ]
    metrics += [made.Metric(_safe(f"summary/{key}"), value, _end_ms(result), 0) for key, value in numbers.items()]
    parameters = [made.Param(_safe(key), value[:_LONGEST]) for key, value in _description(result).items()]
    tags = [made.RunTag(_safe(key), value[:_LONGEST]) for key, value in texts.items()]
    return {"metrics": metrics, "params": parameters, "tags": tags}


def wandb() -> Writer:
    """Writes an offline run into the folder; with WANDB_MODE=online it is uploaded at once."""
    mode = os.environ.get(MODE, "offline")
    if mode not in ("offline", "online"):
        raise DescriptionError(MODE, mode, 'must be "offline", which it is by default, or "online"')
    client = needed("wandb", "wandb")
    quiet = {"silent": True, "disable_git": True, "disable_code": True, "console": "off", "x_disable_stats": True}

    def write(folder: Path, tables: Tables, result: Result) -> None:
        name, config = result.directory.resolve().name, read(result.directory / "run.toml")
        asked = {"dir": str(folder), "mode": mode, "project": _PROJECT, "name": name, "config": config}
        try:
            run = client.init(**asked, settings=client.Settings(**quiet))
        except client.Error as problem:
            raise DescriptionError(MODE, mode, f"does not begin: {_first_line(problem)}") from problem
        for round_, numbers in _by_round(tables).items():
            run.log(numbers, step=round_)
        numbers, texts = _summary(result)
        run.summary.update(numbers | texts)
        run.finish()
        client.teardown()  # only then is everything in its file
        if mode == "offline":
            print(f"to upload it: wandb sync {quote(str(Path(run.dir).parent))}")

    return write


def _by_round(tables: Tables) -> dict[int, dict[str, float]]:
    steps: dict[int, dict[str, float]] = {}
    for told in sorted(course(tables), key=lambda told: told.round):
        steps.setdefault(told.round, {"simulated_s": told.simulated_s})[told.name] = told.value
    return steps


def _description(result: Result) -> dict[str, str]:
    """The settings that were in force, by dotted key."""
    tables = read(result.directory / "run.toml")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in leaves(tables)}


def _summary(result: Result) -> tuple[dict[str, float], dict[str, str]]:
    """Its numbers and its texts, by dotted key."""
    numbers, texts = {}, {}
    for key, value in leaves(result.summary):
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[key] = float(value)
        elif value is not None:
            texts[key] = value if isinstance(value, str) else json.dumps(value)
    return numbers, texts


def _end_ms(result: Result) -> int:
    return round(1000 * (result.summary["time"]["simulated_s"] or 0))


def _safe(name: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^\w./ :-]", "_", name)


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]


def needed(module: str, extra: str) -> ModuleType | Any:
    """An optional package; DescriptionError with how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        package = module.partition(".")[0]
        expected = f"needs {package}, which is not installed: pip install 'pflsim[{extra}]'"
        raise DescriptionError("--format", extra, expected) from problem
