"""The record and the summary of a run as flat tables: what other programs read."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from pflsim.record.accuracy import models, over_rounds
from pflsim.record.database import Reader
from pflsim.record.tables import ENDS, TABLES, columns_of

SPLITS = ("test", "validation")


class Flat(NamedTuple):
    """Rows, and the kind of each column: INTEGER, REAL or TEXT; what is missing is None."""

    columns: dict[str, str]
    rows: list[dict[str, Any]]


NAMES = (*(name for name in TABLES if name not in ENDS), "messages", "curve", "summary")
"""The tables of the record, with both ends of `messages` in one; the course of accuracy; and the summary."""


def flat(reader: Reader, summary: Mapping[str, Any], name: str) -> Flat:
    """One table of `NAMES`; ValueError for another name."""
    if name == "curve":
        return _curve(reader)
    if name == "summary":
        return _summary(summary)
    columns, rows = dict(columns_of(name)), reader.rows(name)
    if name == "measures":  # some are arrays, for which flat tables have no column
        columns = {kept: kind for kept, kind in columns.items() if kept != "value"} | {"value": "REAL", "array": "TEXT"}
        rows = [row | _number_or_array(row["value"]) for row in rows]
    return Flat(columns, rows)


def _number_or_array(value: Any) -> dict[str, Any]:
    if value is None or isinstance(value, int | float):
        return {"value": None if value is None else float(value), "array": None}
    return {"value": None, "array": value if isinstance(value, str) else json.dumps(value.tolist())}


def _curve(reader: Reader) -> Flat:
    """A row for each evaluation of each model on each part of the data."""
    rows = []
    for model in models(reader):
        for split in SPLITS:
            for point in over_rounds(reader, model, split):
                told = asdict(point)
                accuracy = told.pop("accuracy")
                rows.append({"model": model, "split": split} | told | accuracy)
    whole = ("round", "payload_bytes", "gradients", "clients", "clients_without_samples")
    texts = {"model": "TEXT", "split": "TEXT"}
    names = rows[0] if rows else texts
    return Flat({name: texts.get(name, "INTEGER" if name in whole else "REAL") for name in names}, rows)


def _summary(summary: Mapping[str, Any]) -> Flat:
    """A row for each number or text of the summary, under its dotted key; lists as JSON."""
    rows = [
        {"key": key, "number": float(value), "text": None}
        if isinstance(value, int | float) and not isinstance(value, bool)
        else {"key": key, "number": None, "text": value if isinstance(value, str) else json.dumps(value)}
        for key, value in leaves(summary)
    ]
    return Flat({"key": "TEXT", "number": "REAL", "text": "TEXT"}, rows)


def leaves(value: Any, at: str = "") -> list[tuple[str, Any]]:
    """What is no table in tables of tables, under dotted keys."""
    if not isinstance(value, Mapping):
        return [(at, value)]
    return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{at}.{key}" if at else str(key))]
