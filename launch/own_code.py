"""A run keeps the researcher's own code that it used, so that its `run.toml` can be run again as it stands."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pflsim.outside import names_a_file

FOLDER = "own"


def keep_own_code(tables: Mapping[str, Any], files: Mapping[str, Sequence[str]], directory: Path) -> dict[str, Any]:
    """Copy `files`, and what each imported from its folder, into `directory`/own; `tables`, naming the copies.

    Files of one folder stay together, in a folder of the same name, as they may import each other.
    """
    places: dict[Path, Path] = {}
    for folder in sorted({Path(path).parent for path in files}):
        taken = set(places.values())
        name = next(
            name
            for number in range(len(taken) + 1)
            if (name := Path(FOLDER, folder.name + (f"-{number + 1}" if number else ""))) not in taken
        )
        places[folder] = name
    for path, sources in files.items():
        folder = Path(path).parent
        for source in {path, *sources}:
            there = directory / places[folder] / Path(source).relative_to(folder)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, there)
    kept: dict[str, Any] = _renamed(tables, places)
    return kept


def _renamed(value: Any, places: Mapping[Path, Path]) -> Any:
    if isinstance(value, Mapping):
        return {key: _renamed(inner, places) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, places) for inner in value]
    if names_a_file(value):
        path, _, attribute = value.rpartition(":")
        full = Path(path).resolve()
        if full.parent in places:
            return f"{(places[full.parent] / full.name).as_posix()}:{attribute}"
    return value
