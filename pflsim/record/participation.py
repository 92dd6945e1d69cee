"""Who took part, and how often: counts, and a picture of every visit to every client over the rounds."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflsim.record.database import Reader
from pflsim.record.plot import COLOURS, STYLE

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LARGEST_DOT, _PANEL_INCHES = 5.0, 3.3


def participation(reader: Reader) -> "np.ndarray[Any, Any]":
    """How often each client was asked to work, [N] int64."""
    import numpy as np

    counts = np.zeros(_clients(reader), dtype=np.int64)
    for _, client in visits(reader):
        counts[client] += 1
    return counts


def visits(reader: Reader) -> list[tuple[int, int]]:
    """Each (round, client) in which a client was asked to work, rounds counted from 1."""
    rows = reader.query("SELECT round, cohort_json FROM rounds ORDER BY round")
    return [(int(round), int(client)) for round, cohort in rows for client in json.loads(cohort)]


def save_participation_plot(records: Mapping[str, Path | str], stem: Path | str) -> tuple[Path, Path]:
    """Draw the runs, label → record, below each other into `stem`.png and `stem`.svg; equal records make equal SVGs.

    On the left a dot for each visit, on the right how often each client was visited: after Figures 1 and 2 of "A
    personalized federated learning method based on stratified sampling".
    """
    import matplotlib as mpl

    drawn = {}
    for label, path in records.items():
        with Reader(path) as reader:
            drawn[label] = (visits(reader), participation(reader).tolist())
    png, svg = Path(f"{stem}.png"), Path(f"{stem}.svg")
    with mpl.rc_context(STYLE):
        figure = participation_figure(drawn)
        figure.savefig(png, dpi=200)
        figure.savefig(svg, metadata={"Date": None})
    return png, svg


def participation_figure(runs: Mapping[str, tuple[Sequence[tuple[int, int]], Sequence[int]]]) -> "Figure":
    """The figure for visits and counts [N] by label; the same scale of counts and rounds for all runs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 0.6 + _PANEL_INCHES * len(runs)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(runs), 2, squeeze=False, sharex="col", sharey="row", width_ratios=(3, 1))
    for index, (label, (visited, counts)) in enumerate(runs.items()):
        dots, bars = panels[index]
        colour = COLOURS[index % len(COLOURS)]
        _draw_visits(dots, visited, len(counts), colour)
        bars.barh(range(len(counts)), counts, height=1.0, color=colour, linewidth=0)
        dots.set_title(label, loc="left")
        fewest, most = min(counts, default=0), max(counts, default=0)
        spread = f"{most} each" if fewest == most else f"{fewest} to {most} each"
        bars.set_title(spread, loc="right", color="#666666")
        dots.set_ylabel("client")
        dots.set_ylim(-0.5, max(1, len(counts)) - 0.5)
    for panel, label in zip(panels[-1], ("round", "visits"), strict=True):
        panel.set_xlabel(label)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    return figure


def _draw_visits(panel: "Axes", visited: Sequence[tuple[int, int]], clients: int, colour: str) -> None:
    from matplotlib.ticker import MaxNLocator

    rounds = max((round for round, _ in visited), default=1)
    room_points = 72 * min(_PANEL_INCHES / max(1, clients), 2 * _PANEL_INCHES / rounds)  # between two dots
    size = min(_LARGEST_DOT, max(1.2, 0.7 * room_points))
    across, up = [round for round, _ in visited], [client for _, client in visited]
    panel.plot(across, up, linestyle="none", marker="s", markersize=size, color=colour, markeredgewidth=0)
    panel.margins(x=0.02)
    panel.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _clients(reader: Reader) -> int:
    """N: who joined, or as far as is known who was asked."""
    (joined,) = reader.query("SELECT COUNT(*) FROM events WHERE what = 'joined'")[0]
    return max(int(joined), max((client for _, client in visits(reader)), default=-1) + 1)
