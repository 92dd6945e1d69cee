"""Finished runs, found again by what they depend on: their description, the code of its parts, and a few versions.

What does not change a run's results is left out of its key: its name, and in simulated time how its clients are placed
in processes. The code of the parts that a description names (the method's file, the model's, your own) is part of the
key, without comments; that of the rest of pflsim is not, or each release would void all runs: it is noted beside the
run, and `is_of_other_code` tells. Nor are defaults, so that a new option voids nothing; but a run whose own `run.toml`
has another value than the description would have now, as where a default has changed, is not taken for it.
"""

import ast
import inspect
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import nodes
import pflsim
from pflsim import catalogue
from pflsim.effective import effective
from pflsim.errors import DescriptionError
from pflsim.record.database import Reader
from pflsim.spec import Description, read
from pflsim.study import versions

NOTE = "sweep.json"
NOT_THE_RESULT = ("name", "clients_per_process", "transport", "start", "patience_s", "checkpoint_every")
"""Of `[run]`: what changes no result in simulated time."""
_NOT_LEARNED = ("pflsim", "python")


def key_of(description: Description) -> str:
    """What a run depends on, as 16 hexadecimal digits; runs with the same key have the same results."""
    made_of = {
        "description": _without_placement(description.model_dump(exclude_defaults=True), description.time.mode),
        "files": sorted(_contents(effective(description))),
        "parts": [_code_of(part) for part in _parts(description)],
        "versions": {name: version for name, version in versions().items() if name not in _NOT_LEARNED},
    }
    return sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def _without_placement(tables: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """The tables without what does not change a run's results."""
    left_out = {"run": NOT_THE_RESULT if mode == "virtual" else ("name",), "record": ("plot", "report", "trace")}
    if tables.get("run", {}).get("on_loss") == "restart":  # it ends as if nobody had been lost
        left_out["run"] = (*left_out["run"], "on_loss")
    kept = {
        name: {key: value for key, value in table.items() if key not in left_out[name]} if name in left_out else table
        for name, table in tables.items()
        if name not in ("versions", "beside")
    }
    return {name: table for name, table in kept.items() if table != {}}


def _agree(old: Any, new: Any) -> bool:
    """Whether what is in both tables is the same in both."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(_agree(value, new[key]) for key, value in old.items() if key in new)
    return bool(old == new)


@cache
def code_of_all() -> str:
    """A sha256 over the code of pflsim and of what its processes run, without comments and docstrings."""
    hasher = sha256()
    for package in (pflsim, nodes):
        folder = Path(inspect.getfile(package)).parent
        for path in sorted(folder.rglob("*.py")):
            hasher.update(_without_comments(path.read_text(encoding="utf-8")).encode())
    return hasher.hexdigest()[:16]


class Cache:
    """A folder of runs, one folder each, named by its key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._asked: dict[str, dict[str, Any]] = {}
        self._agreed: dict[str, bool] = {}

    def key_of(self, description: Description) -> str:
        """The key of a run, of which `holds` then knows what it would be."""
        key = key_of(description)
        self._asked[key] = _without_placement(effective(description), description.time.mode)
        return key

    def place(self, key: str) -> Path:
        """Where the run with this key lies, or would."""
        return self.folder / key

    def unfinished(self, key: str, process: int) -> Path:
        """Where `process` keeps it as long as it goes on."""
        return self.folder / f"{key}.{process}"

    def holds(self, key: str) -> bool:
        """Whether a run with this key was finished, and was what a run with it would be now."""
        if not (self.place(key) / NOTE).exists():
            return False
        if key not in self._agreed:
            self._agreed[key] = self._is_whole(key) and self._is_as_now(key)
        return self._agreed[key]

    def _is_as_now(self, key: str) -> bool:
        stored = read(self.place(key) / "run.toml")
        mode = stored.get("time", {}).get("mode", "virtual")
        return _agree(_without_placement(stored, mode), self._asked.get(key, {}))

    def _is_whole(self, key: str) -> bool:
        """Whether all that is read of a finished run is there and can be read; else it is run again."""
        place = self.place(key)
        try:
            for name in (NOTE, "summary.json"):
                json.loads((place / name).read_text(encoding="utf-8"))
            read(place / "run.toml")
            with Reader(place / "record.db") as reader:
                reader.query("SELECT COUNT(*) FROM evaluations")
        except (OSError, ValueError, sqlite3.Error, DescriptionError):
            return False
        return True

    def keep(self, key: str, unfinished: Path) -> None:
        """Take in a run that is done."""
        note = {"key": key, "code": code_of_all()}
        (unfinished / NOTE).write_text(json.dumps(note) + "\n", encoding="utf-8")
        if self.holds(key):  # another sweep was faster
            shutil.rmtree(unfinished)
        else:
            self.keep_failed(key, unfinished)

    def keep_failed(self, key: str, unfinished: Path) -> None:
        """Leave the record of a run that is no result where it can be looked at, until it is run again."""
        shutil.rmtree(self.place(key), ignore_errors=True)
        unfinished.rename(self.place(key))
        self._agreed.pop(key, None)

    def is_of_other_code(self, key: str) -> bool:
        """Whether it was run with other code of pflsim than this; its parts' own code is the same in any case."""
        noted = json.loads((self.place(key) / NOTE).read_text(encoding="utf-8"))
        return bool(noted.get("code") != code_of_all())


def _contents(tables: Any) -> Iterator[str]:
    """The sha256 of every file that a description names: a changed file is another run."""
    if isinstance(tables, Mapping):
        for key, value in tables.items():
            if key == "file" and isinstance(value, str) and Path(value).is_file():
                yield sha256(Path(value).read_bytes()).hexdigest()
            yield from _contents(value)
    elif isinstance(tables, list):
        for one in tables:
            yield from _contents(one)


def _parts(description: Description) -> Iterator[Callable[..., Any]]:
    """The functions and classes that a description names."""
    tables = effective(description)
    sampling = tables["schedule"].get("sampling", "all")
    named = [
        ("algorithms", tables["algorithm"]["name"]),
        ("datasets", tables["data"]["name"]),
        ("partitions", tables["data"]["partition"]["name"]),
        ("schedules", tables["schedule"]["kind"]),
        ("samplings", sampling["kind"] if isinstance(sampling, Mapping) else sampling),
        *(("models", one["name"]) for one in (tables["model"], *tables["model"].get("others", []))),
        *([("topologies", tables["topology"]["name"])] if "topology" in tables else []),
        *(("codecs", codec["name"]) for codec in tables.get("codec", {}).values()),
    ]
    for room, name in named:
        yield catalogue.find(room, name, room)


@cache
def _code_of(part: Callable[..., Any]) -> str:
    """The code of the files in which a function, or a class and those that it comes from, stand."""
    modules = [inspect.getmodule(one) for one in (inspect.getmro(part) if inspect.isclass(part) else (part,))]
    found = {module.__name__: module for module in modules if isinstance(module, ModuleType)}
    texts = [_source(module) for name, module in sorted(found.items()) if name != "builtins"]
    return sha256("\n".join(texts).encode()).hexdigest()


def _source(module: ModuleType) -> str:
    try:
        return _without_comments(inspect.getsource(module))
    except (OSError, TypeError):
        return module.__name__


def _without_comments(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            del body[0]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
