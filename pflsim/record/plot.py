"""Accuracy over rounds, simulated seconds, bytes and gradients: one figure, any number of runs on it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflsim.record.accuracy import Point, over_rounds
from pflsim.record.database import Reader

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

# Okabe and Ito's colours, which remain distinct for colour-blind readers, in an order in which neighbours
# differ in lightness too; after these, the same again with other dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_MOST_WORST = 3  # runs whose worst tenth is drawn too: with more of them nobody could tell the lines apart

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.direction": "out",
    "svg.hashsalt": "pflsim",  # ids in the file come from this instead of from chance
    "svg.fonttype": "none",  # text stays text: searchable, and the same on every machine
}


def save_accuracy_plot(records: Mapping[str, Path | str], stem: Path | str, title: str = "") -> tuple[Path, Path]:
    """Draw the runs, label → record, into `stem`.png and `stem`.svg; equal records make equal SVGs.

    Lines are the headline model's weighted test accuracy. A run by itself has a band from the worst to the best tenth
    of clients; of a few, which would cover each other's, the worst tenth is a thin line.
    """
    import matplotlib as mpl

    curves = {}
    for label, path in records.items():
        with Reader(path) as reader:
            curves[label] = over_rounds(reader)
    png, svg = Path(f"{stem}.png"), Path(f"{stem}.svg")
    with mpl.rc_context(STYLE):
        figure = accuracy_figure(curves, title)
        figure.savefig(png, dpi=200)
        figure.savefig(svg, metadata={"Date": None})
    return png, svg


def accuracy_figure(curves: Mapping[str, Sequence[Point]], title: str = "") -> "Figure":
    """The figure of four panels for curves by label; a label without a point is only in the legend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.7), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Sequence[Axes] = figure.subplots(1, 4, sharey=True)
    unit, bytes_per_unit = _byte_unit(curves)
    axes: dict[str, Callable[[Point], float]] = {
        "round": lambda point: point.round,
        "simulated time, s": lambda point: point.simulated_s,
        f"payload sent, {unit}": lambda point: point.payload_bytes / bytes_per_unit,
        "gradients of samples, million": lambda point: point.gradients / 1e6,
    }
    for panel, (label, position) in zip(panels, axes.items(), strict=True):
        _draw(panel, position, curves)
        panel.set_xlabel(label)
        panel.margins(x=0.02)
        if label != "round":
            panel.set_xlim(left=0)
        panel.xaxis.set_major_locator(_ticks(integer=label == "round"))
        panel.tick_params(axis="y", length=0)
    panels[0].set_ylabel("test accuracy, %")
    panels[0].yaxis.set_major_locator(_ticks())
    lines, labels = panels[0].get_legend_handles_labels()
    if lines:
        legend = figure.legend(lines, labels, loc="outside upper center", ncols=min(len(lines), 6), frameon=False)
        legend.set_title(title)  # a figure's own title would lie over the legend
    figure.supxlabel(_caption(curves), fontsize=7.5, color="#666666")
    return figure


def _draw(panel: "Axes", position: Callable[[Point], float], curves: Mapping[str, Sequence[Point]]) -> None:
    for index, (label, curve) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        x = [position(point) for point in curve]
        y = [100 * point.accuracy.weighted for point in curve]
        if _stands_still(x):
            panel.axhline(y[-1], linewidth=1.2, color=colour, linestyle=(0, (4, 3)))
            continue
        worst = [100 * point.accuracy.worst_decile for point in curve]
        if len(curves) == 1:
            best = [100 * point.accuracy.best_decile for point in curve]
            panel.fill_between(x, worst, best, color=colour, alpha=0.15, linewidth=0)
        elif len(curves) <= _MOST_WORST:
            panel.plot(x, worst, color=colour, linestyle=(0, (1, 1.5)), linewidth=1.0)
        dashes = _DASHES[index // len(COLOURS) % len(_DASHES)]
        panel.plot(x, y, color=colour, linestyle=dashes, linewidth=1.6, label=label, solid_capstyle="round")
        # A dot, because one run ends where others may go on.
        panel.plot(x[-1:], y[-1:], color=colour, marker="o", markersize=4)


def _stands_still(x: Sequence[float]) -> bool:
    """Whether a run never moved along an axis: what sends nothing has no course over bytes."""
    return len(x) > 1 and x[0] == x[-1]


def _caption(curves: Mapping[str, Sequence[Point]]) -> str:
    said = ["line: accuracy weighted by test samples"]
    if len(curves) == 1:
        said.append("band: from the worst to the best tenth of clients")
    elif len(curves) <= _MOST_WORST:
        said.append("dotted: the worst tenth of clients")
    if any(_stands_still([point.payload_bytes for point in curve]) for curve in curves.values()):
        said.append("dashed: last accuracy of what sends nothing")
    return "; ".join(said)


def _byte_unit(curves: Mapping[str, Sequence[Point]]) -> tuple[str, float]:
    most = max((point.payload_bytes for curve in curves.values() for point in curve), default=0)
    return ("GB", 1e9) if most >= 2e9 else ("MB", 1e6) if most >= 2e5 else ("kB", 1e3)


def _ticks(*, integer: bool = False) -> "MaxNLocator":
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=6, integer=integer, steps=[1, 2, 5, 10])
