"""The picture of how far the models of peers are from each other, over rounds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pflsim.record.plot import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def consensus_figure(course: Sequence[tuple[int, float]], title: str = "") -> "Figure":
    """The consensus distance over rounds; on a logarithmic scale, where no distance is 0."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    panel: Axes = figure.subplots()
    rounds, distances = [round for round, _ in course], [distance for _, distance in course]
    panel.plot(rounds, distances, color=COLOURS[0], linewidth=1.6)
    panel.plot(rounds[-1:], distances[-1:], color=COLOURS[0], marker="o", markersize=4)
    if min(distances) > 0 and max(distances) > 10 * min(distances):
        panel.set_yscale("log")
    else:
        panel.set_ylim(bottom=0)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    panel.set_xlabel("round of each peer")
    panel.set_ylabel(r"consensus distance, $\|w_k - \bar w\|^2 / N$, summed")
    panel.set_title(title, fontsize=9)
    return figure


def save_consensus_plot(stem: Path | str, course: Sequence[tuple[int, float]], title: str = "") -> tuple[Path, Path]:
    """Draw `consensus_figure` into `stem`.png and `stem`.svg."""
    import matplotlib as mpl

    png, svg = Path(f"{stem}.png"), Path(f"{stem}.svg")
    with mpl.rc_context(STYLE):
        figure = consensus_figure(course, title)
        figure.savefig(png, dpi=200)
        figure.savefig(svg, metadata={"Date": None})
    return png, svg
