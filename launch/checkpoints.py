"""The checkpoints of a run, DIR/checkpoints/000010 and so on: what belongs to one, and which is good.

In the folder of a checkpoint lies a file of each actor, and when all are there and the record has all that was told
before, `checkpoint.json`, which says so: until then there is no checkpoint. The last two are kept.
"""

import fcntl
import json
import os
import shutil
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, Any

import nodes
import pflsim
from pflsim.errors import DescriptionError, few
from pflsim.record.database import Reader, Record
from pflsim.record.history import SERVER
from pflsim.record.tables import ENDS

KEPT = 2
MANIFEST = "checkpoint.json"
FOLDER = "checkpoints"


@dataclass(frozen=True)
class Checkpoint:
    """What is to be known of one."""

    round: int
    wall_s: float
    """Host seconds from the beginning of the command."""
    files: Mapping[str, str]
    """Their sha256, by name."""
    rows: Mapping[str, int]
    """By table of the record: the number of the last row that was told before."""
    run: Mapping[str, Any]
    """The description, as the run's `run.toml` has it."""
    code: str
    """See `code_of`."""


class Parts:
    """What has come of checkpoints that are not whole."""

    def __init__(self, clients: Sequence[str], *, has_server: bool) -> None:
        states, crossed = ((SERVER, *clients), ()) if has_server else (tuple(clients), tuple(clients))
        self._expected = {*(f"{name}.state" for name in states), *(f"{name}.crossed" for name in crossed)}
        self._come: dict[int, tuple[dict[str, str], dict[str, int]]] = {}

    def add(
        self, round: int, files: Mapping[str, str], rows: Mapping[str, int]
    ) -> tuple[dict[str, str], dict[str, int]] | None:
        """These belong to that of `round`; its files and rows if it is whole now."""
        both = self._come.setdefault(round, ({}, {}))
        both[0].update(files)
        both[1].update(rows)
        if not both[1] or both[0].keys() != self._expected:
            return None
        self._come = {later: parts for later, parts in self._come.items() if later > round}
        return both


class Checkpoints:
    """The checkpoints of the run in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory, self.folder = directory, directory / FOLDER

    def hold(self) -> IO[bytes]:
        """Make sure that nobody else runs this run, as long as what is given back is open. Raises DescriptionError."""
        self.folder.mkdir(exist_ok=True)
        lock = (self.folder / "lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            lock.close()
            raise DescriptionError("DIR", str(self._directory), "is that of a run that goes on right now") from problem
        return lock

    def complete(self, checkpoint: Checkpoint) -> None:
        """All that belongs to it is there: from now on it counts, and those before the last two are removed."""
        place = self.folder / _name(checkpoint.round)
        content = asdict(checkpoint)
        unfinished = place / f"{MANIFEST}.unfinished"
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump({"sha256": _digest(content), "checkpoint": content}, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(place / MANIFEST)
        for folder in (place, self.folder):
            descriptor = os.open(folder, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        whole = [one.name for one in self._places() if (one / MANIFEST).exists()]
        for older in self._places():
            if older.name < whole[:KEPT][-1]:
                shutil.rmtree(older, ignore_errors=True)

    def last(self, say: Callable[[str], None]) -> Checkpoint | None:
        """The last one that is whole; `say` is told why a later one is not. Nothing is changed."""
        begun: list[str] = []
        for place in self._places():
            if not (place / MANIFEST).exists():
                begun.append(place.name)
                continue
            flaw, found = self._opened(place)
            if found is not None:
                break
            say(f"checkpoint {place.name} is not used: {flaw}")
        else:
            found = None
        if begun:
            say(f"not used, as not all had been written down: checkpoint {few(begun)}")
        return found

    def go_back_to(self, checkpoint: Checkpoint, record: Record) -> None:
        """Put `record` back to when it was taken; the later ones are removed, for what they have will come again."""
        for place in self._places():
            if place.name > _name(checkpoint.round):
                shutil.rmtree(place, ignore_errors=True)
        record.forget_after(checkpoint.rows)
        self.complete(replace(checkpoint, rows=record.last_rows()))  # rows of peers' words went, too

    def last_round(self) -> int:
        """After which round the last one was taken; 0 if there is none."""
        return max((int(place.name) for place in self._places() if (place / MANIFEST).exists()), default=0)

    def remove(self) -> None:
        """The run is done: nobody needs them any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _places(self) -> list[Path]:
        """All folders of checkpoints, the last first."""
        if not self.folder.is_dir():
            return []
        return sorted((one for one in self.folder.iterdir() if one.name.isdecimal()), reverse=True)

    def _opened(self, place: Path) -> tuple[str, Checkpoint | None]:
        """The checkpoint in a folder, if it is whole; else what is wrong with it."""
        try:
            said = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
            content = said["checkpoint"]
            if said["sha256"] != _digest(content):
                return f"{MANIFEST} has another checksum than it says", None
            found = Checkpoint(**content)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
            return f"{MANIFEST} cannot be read ({problem})", None
        for name, digest in found.files.items():
            if _digest_of(place / name) != digest:
                return f"{name} is missing or has another checksum than it had", None
        try:
            with closing(Reader(self._directory / "record.db")) as reader:
                lacking = [table for table, row in _needed(found).items() if (_last_row(reader, table) or 0) < row]
        except (OSError, sqlite3.Error) as problem:
            return f"record.db cannot be read ({problem})", None
        return ("record.db lacks what was told before it", None) if lacking else ("", found)


def described(directory: Path) -> dict[str, Any]:
    """The description of the run in `directory`, as it lies there."""
    return tomllib.loads((directory / "run.toml").read_text(encoding="utf-8"))


def code_of(directory: Path) -> str:
    """What 16 hexadecimal digits say of the code that a run in `directory` depends on, its own included."""
    hasher = sha256()
    for path in _sources(directory):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()[:16]


def _sources(directory: Path) -> Iterator[Path]:
    for package in (pflsim, nodes):
        yield from sorted(Path(str(package.__file__)).parent.rglob("*.py"))
    yield from sorted((directory / "own").rglob("*.py"))


def _name(round: int) -> str:
    return f"{round:06d}"


def _digest(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest_of(path: Path) -> str:
    """Empty for what cannot be read."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _needed(checkpoint: Checkpoint) -> dict[str, int]:
    """By table: the row that must be there; of peers' messages, the last may be among what they say anew."""
    among_peers = any(name.endswith(".crossed") for name in checkpoint.files)
    return {table: row for table, row in checkpoint.rows.items() if not (among_peers and table in ENDS)}


def _last_row(reader: Reader, table: str) -> int | None:
    found: int | None = reader.query(f"SELECT MAX(rowid) FROM {table}")[0][0]
    return found
