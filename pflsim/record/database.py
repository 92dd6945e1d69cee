"""The record of a run: one `Record` writes its facts into an SQLite file, any number of `Reader`s read them.

Actors send facts (see `pflsim.record.tables`) in batches; the recorder process hands each batch to `Record.write`,
which is one transaction. The file is in WAL mode, so that it can be read while the run goes on, and whatever
was committed outlives a SIGKILL of the writer.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pflsim.record.tables import ENDS, ORDER, SAID_ANEW, TABLES, VERSION, columns_of, insertion, schema

if TYPE_CHECKING:  # numpy takes ten times longer to import than this whole module
    import numpy as np


def packed(array: "np.ndarray[Any, Any]") -> bytes:
    """An array as the bytes that a `measures` fact carries (the .npy format, so that it describes itself)."""
    import numpy as np

    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def unpacked(value: bytes) -> "np.ndarray[Any, Any]":
    """The array that `packed` made into bytes."""
    import numpy as np

    array: np.ndarray[Any, Any] = np.load(BytesIO(value), allow_pickle=False)
    return array


class Record:
    """Writes the facts of one run into the SQLite file `path`; only one process may hold it.

    An existing file is refused (FileExistsError), because two runs in one record would spoil both, unless
    `resume`. With `numbered` rows it can be put back to what it was.
    """

    def __init__(self, path: Path | str, *, resume: bool = False, numbered: bool = False) -> None:
        self.path = Path(path)
        if self.path.exists() and not resume:
            raise FileExistsError(f"{self.path} is the record of another run")
        self._database = sqlite3.connect(self.path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        # A crash of the whole machine may cost the last commits, but never spoils the file.
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute("BEGIN")
        for statement in schema(numbered=numbered):
            self._database.execute(statement)
        self._database.execute(f"PRAGMA user_version = {VERSION}")
        self._database.execute("COMMIT")
        self._insert = {table: insertion(table) for table in TABLES}

    def write(self, facts: Iterable[tuple[Any, ...]]) -> None:
        """Write a batch as one transaction: all of it, or (when a fact is malformed, which raises) nothing.

        A second `received` of a message becomes a `dropped` row with the reason "duplicate". A second `sent`
        is an error of this program: the batch is kept without it, then AssertionError names the message.
        """
        batches: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for fact in facts:
            batches[fact[0]].append(fact[1:])
        if unknown := batches.keys() - TABLES.keys():
            raise ValueError(f"no table is called {sorted(unknown)}; known are {', '.join(TABLES)}")
        if not batches:
            return
        self._database.execute("BEGIN IMMEDIATE")
        try:
            sent_twice = self._write_end("sent", batches.pop("sent", []))
            for duplicate in self._write_end("received", batches.pop("received", [])):
                batches["dropped"].append(_as_dropped(duplicate))
            for table, rows in batches.items():
                self._database.executemany(self._insert[table], rows)
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
        if sent_twice:
            sender, _, kind, channel, sequence, *_ = sent_twice[0]
            raise AssertionError(f"{sender} says twice that it sent {kind}, number {sequence} on {channel}")

    def last_rows(self) -> dict[str, int]:
        """By table: the number of the last row."""
        found = {table: self._database.execute(f"SELECT MAX(rowid) FROM {table}").fetchone()[0] for table in TABLES}
        return {table: row or 0 for table, row in found.items()}

    def forget_after(self, last_rows: Mapping[str, int]) -> None:
        """Put it back to when these were its last rows."""
        self._database.execute("BEGIN IMMEDIATE")
        for table, row in last_rows.items():
            columns_of(table)  # or it is none of ours
            self._database.execute(f"DELETE FROM {table} WHERE rowid > ?", (row,))
        for end in ENDS:  # the coordinator of peers is asked anew, and says with other numbers what it says again
            self._database.execute(f"DELETE FROM {end} WHERE {SAID_ANEW}")
        self._database.execute("COMMIT")

    def _write_end(self, end: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Write what one end says; gives back the rows whose message had this end already."""
        if not rows:
            return []
        self._database.execute("SAVEPOINT before_end")
        written = self._database.executemany(self._insert[end], rows).rowcount
        if written == len(rows):
            self._database.execute("RELEASE before_end")
            return []
        # Rare, so it may be slow: once more, one by one, to learn which ones.
        self._database.execute("ROLLBACK TO before_end")
        return [row for row in rows if self._database.execute(self._insert[end], row).rowcount == 0]

    def close(self) -> None:
        """Close the file and leave it as one self-contained file, without the `-wal` beside it."""
        try:
            self._database.execute("PRAGMA busy_timeout = 0")
            self._database.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError:
            pass  # somebody is reading just now: the last one to close tidies up
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _as_dropped(received: tuple[Any, ...]) -> tuple[Any, ...]:
    sender, receiver, kind, channel, sequence, payload_bytes, header_bytes, control_bytes, _ = received
    total_bytes = payload_bytes + header_bytes + control_bytes
    return receiver, "duplicate", f"{kind} was received before", total_bytes, sender, channel, sequence


class Reader:
    """Reads the record at `path`, while the run goes on and after a crash; a call sees the last commit."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(f"there is no record at {self.path}")
        self._database = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)

    def query(self, select: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of any SELECT, as tuples."""
        return self._database.execute(select, values).fetchall()

    def told(self, table: str) -> frozenset[str]:
        """The columns that the record has of a table: fewer, or none, if it was made by an earlier version."""
        return frozenset(name for (name,) in self.query("SELECT name FROM pragma_table_info(?)", table))

    def rows(self, table: str, **where: object) -> list[dict[str, Any]]:
        """The rows of `table` whose columns equal `where` (None: is missing), in an order that does not vary.

        Arrays in `measures` come as arrays. What a record of an earlier version does not have yet is missing. Raises
        ValueError for an unknown table or column.
        """
        columns = columns_of(table)
        if unknown := where.keys() - columns.keys():
            raise ValueError(f"{table} has no column {sorted(unknown)}; it has {', '.join(columns)}")
        told = self.told(table)
        if not told:
            return []
        condition = " AND ".join(f"{name if name in told else 'NULL'} IS ?" for name in where) or "TRUE"
        found = self.query(f"{_selection(table, told)} WHERE {condition} ORDER BY {ORDER[table]}", *where.values())
        rows = [dict(zip(columns, row, strict=True)) for row in found]
        if table == "measures":
            for row in rows:
                row["value"] = _readable(row["value"])
        return rows

    def arrays(self, table: str) -> dict[str, "np.ndarray[Any, Any]"]:
        """The columns of `table` as arrays [rows], in the order of `rows`.

        Integers are int64 (times too) with -1 for what is missing, reals float64 with nan, texts str with "".
        """
        columns = columns_of(table)
        told = self.told(table)
        found = self.query(f"{_selection(table, told)} ORDER BY {ORDER[table]}") if told else []
        values: Iterable[Sequence[Any]] = zip(*found, strict=True) if found else [()] * len(columns)
        return {name: _as_array(kind, column) for (name, kind), column in zip(columns.items(), values, strict=True)}

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _selection(table: str, told: Collection[str]) -> str:
    """All columns of a table; those that the record does not have are missing."""
    names = (name if name in told else f"NULL AS {name}" for name in columns_of(table))
    return f"SELECT {', '.join(names)} FROM {table}"


def _readable(value: Any) -> Any:
    return unpacked(value) if isinstance(value, bytes) and value.startswith(b"\x93NUMPY") else value


def _as_array(kind: str, column: Sequence[Any]) -> "np.ndarray[Any, Any]":
    import numpy as np

    if kind == "INTEGER":
        return np.array([-1 if value is None else value for value in column], dtype=np.int64)
    if kind == "REAL":
        return np.array([np.nan if value is None else value for value in column], dtype=np.float64)
    if kind == "TEXT":
        return np.array(["" if value is None else value for value in column], dtype=np.str_)
    objects = np.empty(len(column), dtype=object)
    objects[:] = [_readable(value) for value in column]
    return objects
