"""Pictures of what a method measured: a line for each number over rounds, lists and matrices at chosen rounds."""

import math
from collections.abc import Mapping, Sequence

from pflsim.report.picture import BLUE, METHODS, SCALE, Json, Key, Picture, axis, colour_bar, numbers, plain, rows_axis

_MOST_POINTS = 500  # of a line
_SHOWN = 4  # rounds
_LARGE = 50.0  # ratio beyond which an axis is logarithmic


def chosen(rounds: Sequence[int]) -> list[int]:
    """At most four of these rounds: the first, the last, and between them more of the early ones."""
    ordered, last = sorted(rounds), len(rounds)
    places = {round(last ** (step / (_SHOWN - 1))) - 1 for step in range(_SHOWN)} if ordered else set()
    return [ordered[place] for place in sorted(places)]


def line(name: str, values: Mapping[int, float | None]) -> Picture:
    """A number over rounds; on a logarithmic axis where it is always positive and changes a lot."""
    every = max(1, -(-len(values) // _MOST_POINTS))
    rounds = sorted(values)
    rounds = [number for place, number in enumerate(rounds) if place % every == 0 or number == rounds[-1]]
    known = [value for value in values.values() if value is not None and math.isfinite(value)]
    is_wide = bool(known) and min(known) > 0.0 and max(known) / min(known) >= _LARGE
    trace = _line(rounds, [values[number] for number in rounds], BLUE, "round")
    scale = {"type": "log", "dtick": 1} if is_wide and max(known) / min(known) >= 1e3 else {}
    y = axis(plain(name), **(scale or ({"type": "log"} if is_wide else {})))
    return Picture([trace], {"xaxis": axis("round"), "yaxis": y}, f"{name} over rounds.", 240)


def entries(name: str, lists: Mapping[int, Sequence[float]], of: str = "round") -> Picture:
    """A list of numbers, entry by entry from 1, of chosen rounds (or seeds); one line where it is always the same."""
    shown = chosen(list(lists))
    if all(list(lists[number]) == list(lists[shown[-1]]) for number in shown):
        shown = shown[-1:]
    traces, legend = [], []
    for place, number in enumerate(shown):
        colour = METHODS[place % len(METHODS)]
        traces.append(_line(range(1, len(lists[number]) + 1), lists[number], colour, "entry", markers=True))
        legend.append(Key(f"{of} {number}", colour, "line"))
    layout = {"xaxis": axis("entry"), "yaxis": axis(plain(name))}
    about = f"{name}, entry by entry, of {of} {', '.join(map(str, shown))}."
    return Picture(traces, layout, about, 240, legend=legend if len(legend) > 1 else ())


def matrices(
    name: str, found: Mapping[int, Sequence[Sequence[float]]], rows: Mapping[int, Sequence[str]]
) -> list[Picture]:
    """A heat map for each round of square matrices, with the names of their rows; the colours mean the same in all."""
    known = [value for matrix in found.values() for row in matrix for value in row if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    return [_matrix(name, number, found[number], rows[number], low, high) for number in sorted(found)]


def _matrix(
    name: str, number: int, matrix: Sequence[Sequence[float]], rows: Sequence[str], low: float, high: float
) -> Picture:
    names = [plain(row) for row in rows]
    trace: Json = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": [numbers(row, 4) for row in matrix],
        "zmin": low,
        "zmax": high if high > low else low + 1.0,
        "colorscale": SCALE,
        "colorbar": colour_bar(plain(name)),
        "xgap": 1 if len(rows) <= 40 else 0,
        "ygap": 1 if len(rows) <= 40 else 0,
        "hovertemplate": "%{y}, %{x}<br>%{z}<extra></extra>",
    }
    across = axis(type="category", categoryorder="array", categoryarray=names, nticks=20, showgrid=False, ticks="")
    layout = {"xaxis": across, "yaxis": rows_axis(names)}
    about = f"{name} after round {number}, {len(rows)} by {len(rows)}."
    return Picture([trace], layout, about, min(560, 220 + 8 * len(rows)), title=f"{name}, round {number}")


def _line(x: Sequence[int], values: Sequence[float | None], colour: str, what: str, markers: bool = False) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers" if markers or len(x) == 1 else "lines",
        "x": list(x),
        "y": numbers(values),
        "line": {"color": colour, "width": 2.2},
        "marker": {"color": colour, "size": 6},
        "hovertemplate": f"{what} %{{x}}: %{{y:.4~g}}<extra></extra>",
    }
