"""Draws a comparison: every seed as a point, the means, and the differences with their intervals."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from launch.compare.comparing import Comparison, Line
from pflsim.record.plot import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW_INCHES, _HEAD_INCHES = 0.32, 1.1
_WHOLE, _FAINT = "#000000", "#9a9a9a"


def save_picture(comparison: Comparison, stem: Path) -> list[Path]:
    """Draw into `stem`.png and `stem`.svg."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = comparison.columns
    heights = [_HEAD_INCHES + _ROW_INCHES * len(comparison.of(column)) for column in columns]
    drawn = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(columns), 2, squeeze=False, gridspec_kw={"height_ratios": heights})
        for (left, right), column in zip(panels, columns, strict=True):
            lines = comparison.of(column)
            _draw_accuracies(left, lines, column)
            _draw_differences(right, lines, comparison.baseline)
        figure.savefig(drawn[0], dpi=200)
        figure.savefig(drawn[1], metadata={"Date": None})
    return drawn


def _draw_accuracies(panel: "Axes", lines: list[Line], column: str) -> None:
    for place, line in enumerate(lines):
        values = sorted(line.percent().values())
        panel.plot(values, [place] * len(values), "o", color=COLOURS[0], alpha=0.55, markersize=4.5, markeredgewidth=0)
        panel.plot([sum(values) / len(values)], [place], "|", color=_WHOLE, markersize=13, markeredgewidth=1.6)
    panel.set_yticks(range(len(lines)), [line.label for line in lines])
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.set_xlabel("test accuracy, %; a point per seed, line: mean")
    panel.set_title(column, loc="left", fontsize=9, fontweight="bold")


def _draw_differences(panel: "Axes", lines: list[Line], baseline: str) -> None:
    base = next((line for line in lines if line.is_baseline), None)
    panel.axvline(0, color=_WHOLE, linewidth=0.8)
    for place, line in enumerate(lines):
        if line.is_baseline:
            panel.annotate("baseline", (0, place), (4, 0), textcoords="offset points", va="center", color=_FAINT)
        if line.difference is None or base is None:
            continue
        found, ours, theirs = line.difference, line.percent(), base.percent()
        each = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        colour = COLOURS[1] if line.differs else _FAINT
        panel.plot(each, [place] * len(each), "o", color=colour, alpha=0.55, markersize=4.5, markeredgewidth=0)
        panel.plot([found.mean], [place], "|", color=_WHOLE, markersize=13, markeredgewidth=1.6)
        if not math.isnan(found.low):
            panel.plot([found.low, found.high], [place, place], color=colour, linewidth=1.6)
    panel.set_yticks(range(len(lines)), [""] * len(lines))
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.set_xlabel(f"points more than {baseline}, same seed; line: 95 % t interval\ncoloured: differs (Holm, 0.05)")
