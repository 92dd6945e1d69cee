"""Trace files: CSV tables with one row per client, read with errors that name the line."""

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pflsim.errors import DescriptionError, few

SERVER = "server"
MOST = sys.float_info.max


@dataclass(frozen=True)
class Row:
    """One row of the file that the description names at `key`."""

    key: str
    file: str
    line: int
    values: dict[str, str]

    def wrong(self, reason: str) -> DescriptionError:
        """The error that says that `reason` is wrong with this row."""
        return DescriptionError(self.key, self.file, f"line {self.line}: {reason}")

    def number(self, column: str, least: float = 0.0, *, above: bool = False, most: float = MOST) -> float:
        """The number in `column`, at least `least` (or `above` it) and at most `most`; raises DescriptionError."""
        text = self.values[column]
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(f"{column} = {text!r} must be a number") from None
        if not (least < value if above else least <= value) or not value <= most:
            to = f" to {most:g}" if most < MOST else ""
            raise self.wrong(f"{column} = {text} must be a finite number {'above' if above else 'from'} {least:g}{to}")
        return value


def read_rows(key: str, file: str, required: Sequence[str], optional: Sequence[str] = ()) -> list[Row]:
    """The rows of a CSV file with a header line; further columns and empty lines are left out.

    Raises DescriptionError, with the line, for a file that cannot be read, a column that is missing, and a row in
    which something required is missing.
    """
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines)
            table = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise DescriptionError(key, file, f"cannot be read: {problem}") from problem
    table = [(line, cells) for line, cells in table if any(cells)]
    header = table[0][1] if table else []
    for column in (*required, *optional):
        if header.count(column) > 1:
            raise DescriptionError(key, file, f"line 1: has the column {column!r} twice")
    for column in required:
        if column not in header:
            raise DescriptionError(
                key, file, f"line 1: has no column {column!r}, only {', '.join(header) or 'nothing'}"
            )
    rows = []
    for line, cells in table[1:]:
        row = Row(key, file, line, dict(zip(header, cells, strict=False)))
        for column in required:
            if not row.values.get(column):
                raise row.wrong(f"has no {column}")
        wanted = {column: row.values.get(column, "") for column in (*required, *optional)}
        rows.append(Row(key, file, line, wanted))
    return rows


def read_rows_by_actor(
    key: str, file: str, actors: Sequence[str], column: str, required: Sequence[str], optional: Sequence[str] = ()
) -> list[Row]:
    """For each of `actors` its one row; rows of others are left out, as of a trace with more clients than the run.

    `column` says whose a row is. Raises DescriptionError, also for an actor without a row or with two.
    """
    written, found = ways_to_write(actors), dict[str, Row]()
    for row in read_rows(key, file, [column, *required], optional):
        actor = written.get(row.values[column])
        if actor is None:
            continue
        if actor in found:
            raise row.wrong(f"{column} {actor} is on line {found[actor].line} already")
        found[actor] = row
    missing = [actor for actor in actors if actor not in found]
    if missing:
        raise DescriptionError(key, file, f"has no row for {few(missing)}")
    return [found[actor] for actor in actors]


def ways_to_write(actors: Sequence[str]) -> dict[str, str]:
    """Which actor a text stands for: its name or, for a client, also its number."""
    clients = [actor for actor in actors if actor != SERVER]
    return {str(number): client for number, client in enumerate(clients)} | {actor: actor for actor in actors}
