"""Accuracy along a number: where rows of a sweep differ in one number alone, such as `algorithm.K`, it is an axis."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from launch.sweep.figures import Figure
from launch.sweep.plan import Plan
from pflsim.record.database import Reader, unpacked
from pflsim.record.result import Result
from pflsim.report.measures import entries
from pflsim.report.picture import Picture
from pflsim.report.seeds import Along, along

_LEAST = 4  # rows that make a line


def along_a_number(plan: Plan, own: Sequence[Figure]) -> list[Picture]:
    """A line for the rows that differ in one number alone; a star for a row whose method tells which one it chose.

    That is a measure with the name of the setting. What else such a method tells entry by entry follows, by seed.
    """
    key, groups = _axis([figure for figure in own if figure.values])
    if not groups:
        return []
    lines = []
    for group in groups:
        values = {number: list(figure.values.values()) for number, figure in sorted(group.items())}
        lines.append(Along(str(next(iter(group.values())).cell.tables["algorithm"]["name"]), values))
    stars, beside, name = [], [], key.split(".")[-1]
    in_lines = {figure.cell.row.name for group in groups for figure in group.values()}
    for figure in own:
        told = {} if figure.cell.row.name in in_lines else _told_last(plan, figure)
        chosen = [float(each[name]) for each in told.values() if name in each]
        if chosen and figure.mean is not None:
            stars.append(Along(figure.cell.row.name, {float(np.mean(chosen)): list(figure.values.values())}))
            lists = sorted({one for each in told.values() for one, value in each.items() if value.ndim == 1})
            for one in lists:
                found = {seed: each[one].tolist() for seed, each in told.items() if one in each}
                beside.append(entries(f"{one}, {figure.cell.row.name}", found, "seed"))
    return [along(key, lines, stars), *beside]


def _axis(figures: Sequence[Figure]) -> tuple[str, list[dict[float, Figure]]]:
    """The first setting along which there are lines, and for each line its rows by that number."""
    flat = [dict(_flat(figure.cell.tables)) for figure in figures]
    for key in sorted({key for one in flat for key in one}):
        groups: dict[str, dict[float, Figure]] = defaultdict(dict)
        for figure, one in zip(figures, flat, strict=True):
            value = one.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                others = {name: value for name, value in one.items() if name != key}
                groups[json.dumps(others, sort_keys=True, default=str)][float(value)] = figure
        found = [group for group in groups.values() if len(group) >= _LEAST]
        if found:
            return key, found
    return "", []


def _flat(tables: Mapping[str, Any], below: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{below}{key}.")
        else:
            yield f"{below}{key}", value


def _told_last(plan: Plan, figure: Figure) -> dict[int, dict[str, np.ndarray]]:
    """By seed, what the server of each run told last, by name; but for the clusters of clients."""
    found = {}
    for seed, folder in plan.folders(figure.cell).items():
        with Reader(Result.open(folder).record) as reader:
            select = "SELECT name, value FROM measures WHERE actor = 'server' AND name != 'labels' ORDER BY round"
            told = [(name, value) for name, value in reader.query(select) if value is not None]
            found[seed] = {
                name: unpacked(value) if isinstance(value, bytes) else np.array(value) for name, value in told
            }
    return found
