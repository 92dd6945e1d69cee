"""A graph of your own, from a file: a list of edges, or a matrix of weights."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pflsim.errors import DescriptionError
from pflsim.timing.traces import Row, read_rows

_KEY, _MOST = "topology.file", 1e9


def file(labels: Sequence[tuple[int, ...]], sizes: np.ndarray, rng: np.random.Generator, *, file: str) -> np.ndarray:
    """Weights [N, N] as `file` has them, a path from where pflsim is called.

    A `.csv` that begins with the line `k,l` or `k,l,weight` has an edge on each further line, between the clients with
    these numbers (from 0), of weight 1 if none is given; other columns are left out. Any other `.csv` is a matrix, a
    line for each client with N numbers; so is a `.npy`, an array [N, N]. A matrix is symmetric, its diagonal 0.
    """
    clients = len(labels)
    kind = Path(file).suffix.lower()
    if kind == ".npy":
        return _symmetric(file, _read_npy(file, clients), "row", 0)
    if kind != ".csv":
        raise DescriptionError(_KEY, file, "must end in .csv (edges or a matrix) or in .npy (a matrix)")
    lines = _lines(file)
    if [cell.strip() for cell in (lines[0][1] if lines else "").split(",")][:2] == ["k", "l"]:
        return _edges(file, clients)
    return _symmetric(file, _read_csv(file, lines, clients), "line", 1)


def _edges(file: str, clients: int) -> np.ndarray:
    graph, found = np.zeros((clients, clients)), dict[tuple[int, int], int]()
    for row in read_rows(_KEY, file, ("k", "l"), ("weight",)):
        k, other = _client(row, "k", clients), _client(row, "l", clients)
        if k == other:
            raise row.wrong(f"client {k} cannot be its own neighbour")
        weight = row.number("weight", most=_MOST) if row.values["weight"] else 1.0
        before = found.setdefault((min(k, other), max(k, other)), row.line)
        if before != row.line and graph[k, other] != weight:
            raise row.wrong(f"the edge {k},{other} has another weight on line {before}")
        graph[k, other] = graph[other, k] = weight
    return graph


def _client(row: Row, column: str, clients: int) -> int:
    text = row.values[column]
    if not (text.isascii() and text.isdigit() and int(text) < clients):
        raise row.wrong(f"{column} = {text!r} must be the number of a client, from 0 to {clients - 1}")
    return int(text)


def _lines(file: str) -> list[tuple[int, str]]:
    """The lines that are not empty, with their numbers from 1."""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise DescriptionError(_KEY, file, f"cannot be read: {problem}") from problem
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _read_csv(file: str, lines: Sequence[tuple[int, str]], clients: int) -> list[tuple[int, np.ndarray]]:
    """The rows of a matrix, each with its line."""
    rows = []
    for number, line in lines:
        cells = line.split(",")
        if len(cells) != clients:
            reason = f"line {number}: has {len(cells)} numbers, not {clients}, one for each client"
            hint = "; a list of edges begins with the line k,l or k,l,weight" if len(cells) in (2, 3) else ""
            raise DescriptionError(_KEY, file, reason + hint)
        try:
            rows.append((number, np.array([float(cell) for cell in cells])))
        except ValueError as problem:
            raise DescriptionError(_KEY, file, f"line {number}: {problem}") from None
    if len(rows) != clients:
        raise DescriptionError(_KEY, file, f"has {len(rows)} lines, not {clients}, one for each client")
    return rows


def _read_npy(file: str, clients: int) -> list[tuple[int, np.ndarray]]:
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise DescriptionError(_KEY, file, f"cannot be read as a .npy array: {problem}") from problem
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "buif" or array.shape != (clients, clients):
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive of several"
        raise DescriptionError(_KEY, file, f"must be real numbers of shape {(clients, clients)}, not {found}")
    return list(enumerate(array.astype(np.float64)))


def _symmetric(file: str, rows: Sequence[tuple[int, np.ndarray]], what: str, first: int) -> np.ndarray:
    """The matrix of `rows`, [N, N]; the first entry that cannot be is named by its line (or row) and column."""
    graph = np.array([row for _, row in rows]).reshape(len(rows), len(rows))
    for k, (number, row) in enumerate(rows):
        for other, weight in enumerate(row):
            place = f"{what} {number}, column {other + first}"
            if not 0.0 <= weight <= _MOST:
                raise DescriptionError(_KEY, file, f"{place}: {weight:g} must be from 0 to {_MOST:g}")
            if k == other and weight:
                raise DescriptionError(_KEY, file, f"{place}: {weight:g} must be 0: no client is its own neighbour")
            if weight != graph[other, k]:
                mirrored = f"{graph[other, k]:g} at {what} {rows[other][0]}, column {k + first}"
                raise DescriptionError(_KEY, file, f"{place}: {weight:g} must be equal to {mirrored}")
    return graph
