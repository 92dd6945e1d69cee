"""A researcher's own code: `"file.py:Name"` or `"package.module:Name"`, imported, with errors that say what is missing.

A file's path is relative to the folder of the run description that names it, else to the current folder. What lies
beside the file can be imported by it, as if it were a script; a library of the same name goes first. Each file is
imported once in a process, whoever names it.
"""

import difflib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pflsim.errors import DescriptionError

PATTERN = r"[\w.]+:\w+|[^:]+\.py:\w+"
"""How a description names such a part."""

_FILE = re.compile(r"[^:]+\.py:\w+")
_loaded: dict[Path, ModuleType] = {}


def names_a_file(name: object) -> bool:
    """Whether `name` is `"file.py:Name"`."""
    return isinstance(name, str) and _FILE.fullmatch(name) is not None


def title(name: str) -> str:
    """How a part is called in tables: `file.py:Name` without its folder, all else as it stands."""
    return Path(name).name if names_a_file(name) else name


def placed(value: Any, folder: Path) -> Any:
    """`value`, a description's tables, with every `"file.py:Name"` in it made absolute, so that it holds anywhere.

    What lies neither in `folder`, that of the description, nor in the current one is expected in the former, if it can.
    """
    if isinstance(value, Mapping):
        return {key: placed(inner, folder) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [placed(inner, folder) for inner in value]
    if not names_a_file(value):
        return value
    path, _, attribute = value.rpartition(":")
    places = (folder / path, Path(path))
    nearest = next((one for one in places if one.parent.is_dir()), places[0])  # where its neighbours can be told
    there = next((one for one in places if one.is_file()), nearest)
    return f"{there.resolve()}:{attribute}"


def load(name: str, key: str) -> Any:
    """What `name` stands for; raises DescriptionError, naming `key`, that says what is missing and where."""
    where, _, attribute = name.rpartition(":")
    module = _module_of_file(name, key) if names_a_file(name) else _module(where, name, key)
    if not hasattr(module, attribute):
        said = Path(where).name if names_a_file(name) else where
        raise DescriptionError(key, name, f"{said} has no {attribute}; {_near(attribute, _offered(module))}")
    return getattr(module, attribute)


def told(problem: BaseException) -> str:
    """One line about an exception: its kind, what it says, and the line of a user's file in which it was raised."""
    words = str(problem).splitlines()
    said = ": ".join([type(problem).__name__, *words[:1]])
    own = {str(path) for path in _loaded}
    lines = [
        (frame.filename, frame.lineno) for frame in traceback.extract_tb(problem.__traceback__) if frame.filename in own
    ]
    if isinstance(problem, SyntaxError) and problem.filename:
        said = f"{type(problem).__name__}: {problem.msg}"
        lines.append((problem.filename, problem.lineno))
    return f"{said}, in line {lines[-1][1]} of {Path(lines[-1][0]).name}" if lines else said


def blamed(problem: BaseException) -> DescriptionError | None:
    """What to tell of an exception that was raised in a user's file, by the file; None for any other one."""
    own = {str(path) for path in _loaded}
    found = [frame.filename for frame in traceback.extract_tb(problem.__traceback__) if frame.filename in own]
    return DescriptionError("own code", Path(found[-1]).name, f"raised {told(problem)}") if found else None


def files() -> dict[Path, list[Path]]:
    """The files of users' own parts that this process has imported, and what each imported from its folder."""
    ours = {Path(__file__).resolve().parent.parent / package for package in ("pflsim", "nodes", "launch")}
    sources = [Path(found) for module in list(sys.modules.values()) if (found := getattr(module, "__file__", None))]
    return {
        path: sorted(
            source
            for source in sources
            if source.suffix == ".py"
            and path.parent in source.parents
            and not ours.intersection(source.parents)
            and not {"site-packages", "dist-packages"}.intersection(source.parts)
        )
        for path in _loaded
    }


def _module_of_file(name: str, key: str) -> ModuleType:
    path = Path(name.rpartition(":")[0]).resolve()
    if path not in _loaded:
        if not path.is_file():
            raise DescriptionError(key, name, _no_file(path))
        spec = importlib.util.spec_from_file_location(f"own_{path.stem}_{len(_loaded)}", path)
        assert spec is not None and spec.loader is not None  # a .py file has both
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = _loaded[path] = module  # dataclasses and annotations look for it there
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        try:
            spec.loader.exec_module(module)
        except Exception as problem:  # whatever a user's file raises when it is imported
            reason = f"cannot be imported ({told(problem)})"
            del sys.modules[module.__name__], _loaded[path]
            raise DescriptionError(key, name, reason) from problem
    return _loaded[path]


def _module(where: str, name: str, key: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except Exception as problem:  # whatever a user's module raises when it is imported
        line = next(
            (
                f", in line {frame.lineno} of {Path(frame.filename).name}"
                for frame in reversed(traceback.extract_tb(problem.__traceback__))
                if Path(frame.filename).stem == where.split(".")[-1]
            ),
            "",
        )
        reason = f"cannot be imported ({told(problem)}{line})"
        raise DescriptionError(key, name, reason) from problem


def _no_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return (
        f"there is no {path.name} in {path.parent}; {_near(path.name, [one.name for one in path.parent.glob('*.py')])}"
    )


def _offered(module: ModuleType) -> list[str]:
    """The functions and classes that a module itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _near(word: str, known: list[str]) -> str:
    if not known:
        return "no other .py file is there" if word.endswith(".py") else "it defines no function or class"
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    meant = f"; did you mean {by_lower[close[0]]!r}?" if close else ""
    return f"there are {', '.join(sorted(known)[:10])}{meant}"
