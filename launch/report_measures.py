"""The section of a run's report that shows whatever its method measured of the server's state."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

import numpy as np
from scipy.optimize import linear_sum_assignment

from launch.finished import FinishedRun
from pflsim.record.database import Reader, unpacked
from pflsim.report import measures
from pflsim.report.heat import NONE
from pflsim.report.page import Grid, Part, Section

_SHOWN_ELSEWHERE = ("labels", "clusters")
_MOST_CLIENTS = 200  # in a heat map of pairs


def measured(run: FinishedRun) -> Iterator[Section]:
    """Numbers as lines, lists entry by entry, matrices as heat maps; those of clusters also client by client."""
    scalars, arrays = _told(run.reader)
    lines = [measures.line(name, values) for name, values in sorted(scalars.items())]
    lists = {name: found for name, found in arrays.items() if all(value.ndim == 1 for value in found.values())}
    parts: list[Part] = [Grid(lines)] if lines else []
    parts += [measures.entries(name, _lists(found)) for name, found in sorted(lists.items())]  # each with its legend
    for name, found in sorted(arrays.items()):
        if all(value.ndim == 2 and len(value) == len(value.T) for value in found.values()):
            parts += _heat_maps(run, name, {number: found[number] for number in measures.chosen(list(found))})
    if parts:
        yield Section("Measures", parts, "What the method tells of the server's state after each round, by its names.")


def labels_by_round(reader: Reader, clients: int) -> dict[int, list[int]]:
    """By round, the cluster of each client, as clustered methods tell it."""
    found = {}
    for number, value in reader.query("SELECT round, value FROM measures WHERE name = 'labels' ORDER BY round"):
        row = unpacked(value).tolist() if isinstance(value, bytes) else []
        if len(row) == clients:
            found[number] = row
    return found


def matched(labels: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """The same clusters with the numbers of the round before, as many members as can be keeping theirs."""
    found: dict[int, list[int]] = {}
    before: list[int] = []
    for number, row in sorted(labels.items()):
        own, old = sorted(set(row) - {NONE}), sorted(set(before) - {NONE})
        shared = np.array([[sum(pair == (k, j) for pair in zip(row, before, strict=False)) for j in old] for k in own])
        new = dict(zip(own, own, strict=True)) if not old else {}
        if old and own:
            for k, j in zip(*linear_sum_assignment(-shared), strict=True):
                new[own[k]] = old[j]
            free = (place for place in count() if place not in new.values())
            new |= {k: next(free) for k in own if k not in new}
        before = [NONE if k == NONE else new[k] for k in row]
        found[number] = before
    return found


def _told(reader: Reader) -> tuple[dict[str, dict[int, float | None]], dict[str, dict[int, np.ndarray]]]:
    """What the server told: numbers and arrays, by name and round."""
    scalars: dict[str, dict[int, float | None]] = defaultdict(dict)
    arrays: dict[str, dict[int, np.ndarray]] = defaultdict(dict)
    for number, name, value in reader.query("SELECT round, name, value FROM measures WHERE actor = 'server'"):
        if name in _SHOWN_ELSEWHERE:
            continue
        if not isinstance(value, bytes):
            scalars[name][number] = value
        elif (array := unpacked(value)).size:
            arrays[name][number] = array
    return scalars, arrays


def _lists(found: Mapping[int, np.ndarray]) -> dict[int, list[float]]:
    return {number: value.astype(float).tolist() for number, value in found.items()}


def _heat_maps(run: FinishedRun, name: str, found: Mapping[int, np.ndarray]) -> list[Part]:
    """The matrices of these rounds, and where they are of clusters the same client by client."""
    rows = {number: [str(place) for place in range(len(matrix))] for number, matrix in found.items()}
    matrices = {number: matrix.astype(float).tolist() for number, matrix in found.items()}
    parts: list[Part] = [Grid(measures.matrices(name, matrices, rows))]
    clusters, order = labels_by_round(run.reader, len(run.names)), _by_classes(run.reader)
    if len(order) != len(run.names) or len(order) > _MOST_CLIENTS:
        return parts
    wide, names = {}, {}
    for number, matrix in found.items():
        labels = clusters.get(number, [])
        there = [client for client in order if labels and labels[client] != NONE]
        if there and max(labels) < len(matrix) <= len(set(labels) - {NONE}):
            of = [labels[client] for client in there]
            wide[number] = matrix[np.ix_(of, of)].astype(float).tolist()
            names[number] = [f"{run.names[client]}: {order[client]}" for client in there]
    if wide:
        caption = "By pair of clients, each with the classes that it has; those with the same ones stand together."
        parts.append(Grid(measures.matrices(f"{name}, by client", wide, names), caption))
    return parts


def _by_classes(reader: Reader) -> dict[int, str]:
    """The clients, those with equal classes together, and in words which these are."""
    if "labels_json" not in reader.told("clients"):
        return {}
    rows = [(row["client"], json.loads(row["labels_json"])) for row in reader.rows("clients")]
    return {client: _in_short(held) for client, held in sorted(rows, key=lambda row: (row[1], row[0]))}


def _in_short(classes: Sequence[int]) -> str:
    return " ".join(map(str, classes[:4])) + (" …" if len(classes) > 4 else "")
