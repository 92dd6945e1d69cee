"""The run description: a TOML file, read, overridden and validated; everything it may say is on this page.

A key that is not known, or a value that cannot be, raises `DescriptionError` with the key, the value, and what would
be right. Tables that name a part (`[algorithm]`, `[data]`, `[model]`, `[topology]`) also take that part's own
settings, which `pflsim.study` checks against the file that they name.
"""

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from pflsim import outside
from pflsim.errors import DescriptionError
from pflsim.interval import EXPECTED, Interval, interval
from pflsim.learning.training import Training
from pflsim.topology import Weights
from pflsim.values import DEEPEST, Level, plain

Positive = Annotated[int, Field(gt=0)]

MOST_CLIENTS = 1_000_000
LEAST_PATIENCE_S = 5.0


class Table(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class _Named(BaseModel):
    """A table that names a part; what else it says are that part's settings."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: Annotated[str, Field(max_length=1000, pattern=rf"^([\w-]+|{outside.PATTERN})$")]

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def title(self) -> str:
        """How it is called in tables."""
        return outside.title(self.name)


class Stop(Table):
    """When a run ends, whichever comes first; `run.rounds` holds in any case."""

    rounds: Positive | None = None
    simulated_s: Annotated[float, Field(gt=0)] | None = None
    accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    bytes: Positive | None = None


class Seeds(Table):
    """Randomness of the data's partition, of the initial model, and of training and delays, apart."""

    data: int = 0
    init: int = 0
    train: int = 0


def _an_interval(said: object) -> object:
    interval(said)
    return said


class Run(Table):
    """`[run]`: what is run, for how long, and in how many processes."""

    name: Annotated[str, Field(max_length=100, pattern=r"^[\w.-]+$")] = "run"
    seed: Seeds = Seeds()
    rounds: Positive = 30
    clients: Annotated[int, Field(gt=0, le=MOST_CLIENTS)] = 40
    clients_per_process: Positive = 1
    eval_every: Annotated[int, Field(ge=0)] = 1
    eval_every_s: Annotated[float, Field(ge=1e-6)] | None = None
    stop: Stop = Stop()
    checkpoint_every: Annotated[int | str, BeforeValidator(_an_interval)] = 0
    """After so many rounds, or so much time of the host, see `pflsim.interval`."""
    device: str = "cpu"
    transport: Literal["ipc", "tcp"] = "ipc"
    start: Literal["auto", "fork", "spawn"] = "auto"
    patience_s: float = 600.0
    on_loss: Literal["fail", "continue", "restart"] = "fail"
    """What becomes of a run when a client's process, or a host with all its clients, is lost."""

    @property
    def checkpoints(self) -> Interval:
        """How often one is kept."""
        return interval(self.checkpoint_every)

    @model_validator(mode="before")
    @classmethod
    def _one_seed_for_all(cls, given: Any) -> Any:
        if isinstance(given, dict) and type(given.get("seed")) is int:
            seed = given["seed"]
            return given | {"seed": {"data": seed, "init": seed, "train": seed}}
        return given


class Algorithm(_Named):
    """`[algorithm]`, or one of `beside`: the method and its settings."""

    _at: str = PrivateAttr("algorithm")

    @property
    def at(self) -> str:
        """The key at which the description has it, for errors."""
        return self._at

    def placed(self, at: str) -> "Algorithm":
        """The same method, found at the key `at`."""
        moved = self.model_copy()
        moved._at = at
        return moved


class Data(_Named):
    """`[data]`: the data set, where it lies, and how it is parted among the clients."""


class Model(_Named):
    """`[model]`: the model and its settings."""


class Topology(_Named):
    """`[topology]`: the graph between clients and its settings."""

    weights: Weights = "own"
    """What its edges weigh: what the topology says, or one of these, see `pflsim.topology`."""


class Schedule(BaseModel):
    """`[schedule]`: who works when; what else it says are the settings of that kind of schedule."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str = "sync"

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Time(Table):
    """`[time]`: simulated time, in which nobody waits, or real time."""

    mode: Literal["virtual", "wall"] = "virtual"


class RecordTable(Table):
    """`[record]`: what is kept beside the rounds, the evaluations, the messages and the events."""

    spans: bool = True
    plot: bool = True
    trace: bool = False
    report: bool = True
    """Whether a page of all that there is to see, `report.html`, is made at the end of a run."""
    log: Level = "info"
    """The least level of what processes log, see `pflsim.log`."""
    models: bool = False
    """Whether the models that are evaluated last are saved."""
    consensus: bool = True
    """Whether peers tell sketches of their models, see `pflsim.record.consensus`."""


class Description(Table):
    """A whole run description."""

    run: Run = Run()
    training: Training
    algorithm: Algorithm
    data: Data
    model: Model
    topology: Topology | None = None
    schedule: Schedule = Schedule()
    time: Time = Time()
    devices: str | dict[str, Any]
    links: str | dict[str, Any]
    availability: str | dict[str, Any] = "always"
    fault: tuple[dict[str, Any], ...] = ()
    """What goes wrong, when, and to whom: `[[fault]]`, see `pflsim.timing.faults`."""
    codec: dict[str, str | dict[str, Any]] | None = None
    """How messages travel in fewer bytes, by direction: `[codec]`, see `pflsim.coding.settings`."""
    record: RecordTable = RecordTable()
    beside: tuple[Algorithm, ...] = ()
    """Other methods to run on the same seed and partition, for comparison."""
    versions: dict[str, str] = {}
    """What a run was made with: its `run.toml` says it, so that it can be run again as it stands."""

    def model_post_init(self, _: Any) -> None:
        """Tell the methods beside the description's own where they stand."""
        for position, table in enumerate(self.beside):
            table._at = f"beside.{position}"

    def as_tables(self) -> dict[str, Any]:
        """The effective description as plain tables, without what is absent."""
        tables = {key: _without_none(value) for key, value in self.model_dump().items() if value is not None}
        if self.run.eval_every_s is not None:
            del tables["run"]["eval_every"]
        return tables


_REQUIRED = {
    "links": 'is required: a preset such as "wifi" or "ideal", or a full table',
    "devices": 'is required: a preset such as "phone", or a full table',
    "training": "is required: a step_size, and local_steps or local_epochs",
}


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, not yet validated; `"file.py:Name"` in them made absolute, see `pflsim.outside`."""
    try:
        found: dict[str, Any] = outside.placed(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)
        return found
    except OSError as problem:
        raise DescriptionError("file", str(path), f"cannot be read ({problem.strerror})") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise DescriptionError("file", str(path), f"is not TOML: {problem}") from problem
    except RecursionError:
        raise DescriptionError("file", str(path), f"nests tables deeper than {DEEPEST}") from None


def override(tables: dict[str, Any], assignment: str) -> dict[str, Any]:
    """`tables` with one `KEY=VALUE` of the command line applied; dotted keys, TOML values, bare words are text."""
    key, equals, text = assignment.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")):
        raise DescriptionError("--set", assignment, 'must be KEY=VALUE, such as run.rounds=10 or links="wifi"')
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text
    return override_value(tables, key.strip(), value)


def override_value(tables: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """`tables` with the value at a dotted key replaced; tables on the way are made where there are none."""
    *path, last = key.split(".")
    changed = dict(tables)
    table = changed
    for part in path:
        inner = table.get(part, {})
        if not isinstance(inner, Mapping):
            mend = f"{part} is {inner!r} here, not a table: replace it as a whole, {part} = {{ ... }}"
            if part in ("links", "devices"):
                mend += f', such as {{ preset = "{inner}", ... }} with what is different'
            raise DescriptionError(key, value, mend)
        table[part] = dict(inner)
        table = table[part]
    table[last] = value
    return changed


def with_algorithm(tables: dict[str, Any], name: str) -> dict[str, Any]:
    """`tables` for the method `name` alone: with the settings that the description has for it, if it has any."""
    beside = tables.get("beside", [])
    known = [tables.get("algorithm"), *(beside if isinstance(beside, list | tuple) else [])]
    chosen = next((table for table in known if _same_name(table, name)), {"name": name})
    return {key: value for key, value in tables.items() if key != "beside"} | {"algorithm": chosen}


def validate(tables: Mapping[str, Any]) -> Description:
    """The description that `tables` make. Raises DescriptionError for the first thing that is wrong."""
    given = plain(tables)
    try:  # as JSON, in which strict means what TOML means: a list is a list, 1 is 1.0 too, and true is no number
        description = Description.model_validate_json(json.dumps(given), strict=True)
    except pydantic.ValidationError as problem:
        raise first_problem(problem) from None
    _check_together(description)
    return description


def _check_together(description: Description) -> None:
    run = description.run
    if run.device != "cpu":
        reason = "clients are forked processes that share one host's memory, which a GPU context does not survive"
        raise DescriptionError("run.device", run.device, f'only "cpu" for now: {reason}')
    if run.start == "fork" and not fork_is_safe():
        raise DescriptionError("run.start", "fork", 'is not safe on this system; use "spawn"')
    if run.stop.accuracy is not None and run.eval_every == 0 and run.eval_every_s is None:
        raise DescriptionError("run.stop.accuracy", run.stop.accuracy, "needs run.eval_every of at least 1")
    if description.record.models and run.eval_every == 0 and run.eval_every_s is None:
        raise DescriptionError("record.models", True, "needs run.eval_every of at least 1: what is evaluated is saved")
    if run.eval_every_s is not None and "eval_every" in run.model_fields_set:
        given = (run.eval_every, run.eval_every_s)
        raise DescriptionError("run.eval_every, run.eval_every_s", given, "give one of the two")
    if run.checkpoint_every and description.time.mode == "wall":
        reason = "in real time nothing stands still; 0 takes no checkpoints"
        raise DescriptionError("run.checkpoint_every", run.checkpoint_every, f'needs time.mode = "virtual": {reason}')
    if run.on_loss == "restart" and not run.checkpoint_every:
        reason = 'needs run.checkpoint_every, such as 10 (rounds) or "5 min": it goes on from the last checkpoint'
        raise DescriptionError("run.on_loss", run.on_loss, reason)
    if run.checkpoint_every and run.on_loss == "continue":
        reason = "what becomes of a run without who is lost depends on when that was, so it cannot be resumed"
        raise DescriptionError(
            "run.checkpoint_every", run.checkpoint_every, f'needs run.on_loss = "fail" or "restart": {reason}'
        )
    if run.patience_s < LEAST_PATIENCE_S:
        reason = "a process that has much to compute, or a busy machine, answers later without being stuck"
        raise DescriptionError("run.patience_s", run.patience_s, f"must be at least {LEAST_PATIENCE_S:g}: {reason}")
    description.training.check(min(run.rounds, run.stop.rounds or run.rounds))


def client_names(clients: int) -> tuple[str, ...]:
    """The names of the clients, by id: c000, c001, ..."""
    width = max(3, len(str(clients - 1)))
    return tuple(f"c{number:0{width}d}" for number in range(clients))


def fork_is_safe() -> bool:
    """Whether a process that has imported torch can be forked here; on macOS system libraries forbid it."""
    import sys

    return sys.platform.startswith("linux")


def first_problem(problem: pydantic.ValidationError, whole: type[BaseModel] = Description) -> DescriptionError:
    """What is wrong with tables that should be those of `whole`, in the words of a person."""
    error = problem.errors()[0]
    where = [part for part in error["loc"] if not str(part).startswith(("function-", "dict[", "str", "nullable"))]
    key = ".".join(map(str, where))
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _known_keys(whole, where[:-1])
        close = difflib.get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        inside = [f"{table}.{key}" for table in known if key in _keys_inside(whole, table)] if len(where) == 1 else []
        meant = f"; did you mean {(inside or close)[0]!r}?" if inside or close else ""
        return DescriptionError(key, error["input"], f"unknown key; known are {', '.join(known)}{meant}")
    if error["type"] == "missing":
        return DescriptionError(key, None, _REQUIRED.get(key, "is required"))
    expected = error["msg"][0].lower() + error["msg"][1:]
    if error["type"] in ("model_type", "dataclass_type", "dict_type"):
        expected = "must be a table"
    if error["type"] in ("list_type", "tuple_type"):
        expected = f"must be a list, such as {[1, 2, 3] if key.endswith('seeds') else [error['input']]}"
    if key in ("links", "devices"):
        expected = "must be a preset's name or a table"
    if key == "run.stop.accuracy":
        expected = "must be above 0 and at most 1: a fraction, not per cent"
    if key == "beside":
        expected = 'must be a list of tables, such as [{ name = "local" }]'
    if error["type"] == "string_pattern_mismatch" and where[-1:] == ["name"] and key != "run.name":
        expected = 'must be a name of letters, digits, - and _, or your own "file.py:Name" or "package.module:Name"'
    if key == "run.checkpoint_every":
        expected = EXPECTED
    if key == "run.seed":
        expected = "must be a whole number, or { data = 1, init = 2, train = 3 }"
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        options = [option.strip("'") for option in error["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        close = difflib.get_close_matches(error["input"], options, n=1, cutoff=0.5)
        expected += f"; did you mean {close[0]!r}?" if close else ""
    return DescriptionError(key, error["input"], expected)


def _keys_inside(whole: type[BaseModel], table: str) -> list[str]:
    """The keys of one of its tables; none of what is no table, or one of several kinds."""
    try:
        return _known_keys(whole, [table])
    except StopIteration:
        return []


def _known_keys(whole: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    table: Any = whole
    for part in path:
        if isinstance(part, int):  # one of a list of tables, all of one kind
            continue
        annotation = table.model_fields[part].annotation
        candidates = [annotation, *get_args(annotation)]
        table = next(kind for kind in candidates if is_dataclass(kind) or hasattr(kind, "model_fields"))
    return sorted(field.name for field in fields(table)) if is_dataclass(table) else sorted(table.model_fields)


def _same_name(table: object, name: str) -> bool:
    return isinstance(table, Mapping) and str(table.get("name", "")).replace("_", "-") == name.replace("_", "-")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_none(inner) for inner in value]
    return value
