"""Pictures of who is linked with whom: the graph, coloured by a number per client, and the bytes of every pair.

What they draw are plain arrays over the N clients: weights a_kl [N, N] (0: no edge), values [N] (nan: none known) and
bytes [N, N] from sender (row) to receiver (column). For a graph that changes, the weights may be any matrix that is
not 0 where there ever was an edge, such as `bytes_per_pair`.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pflsim.record.database import Reader
from pflsim.record.plot import STYLE
from pflsim.topology import components, edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NODE_COLOURS, _HEAT_COLOURS = "viridis", "viridis_r"  # even in lightness, and safe for colour-blind readers
_LIGHTEST_EDGE, _DARKEST_EDGE = "#d0d0d0", "#202020"
_UNKNOWN = "#ffffff"
_MOST_LABELS, _MOST_NAMES, _MOST_NUMBERS = 60, 40, 12
_DENSE = 0.4  # the share of all pairs from which on only a circle keeps the edges apart
_CLEAR = 100  # nodes up to which the slower layout, which keeps distances, stays below a second or two
_SEED = 1


def bytes_per_pair(reader: Reader, actors: Sequence[str]) -> np.ndarray:
    """Bytes that were charged from each of `actors` to each other one, payload and headers, [N, N] int64."""
    number = {actor: position for position, actor in enumerate(actors)}
    found = np.zeros((len(actors), len(actors)), dtype=np.int64)
    select = (
        "SELECT sender, receiver, SUM(payload_bytes + header_bytes) FROM sent WHERE channel = 'data' "
        "GROUP BY sender, receiver"
    )
    for sender, receiver, sent_bytes in reader.query(select):
        if sender in number and receiver in number:
            found[number[sender], number[receiver]] = sent_bytes
    return found


def positions(weights: np.ndarray) -> np.ndarray:
    """Where to draw the nodes, [N, 2]: the same for the same edges; components lie beside each other."""
    placed = np.zeros((len(weights), 2))
    left, bottom, top = 0.0, 0.0, 0.0
    parts = sorted(components(weights), key=len, reverse=True)
    row = 1.25 * math.sqrt(sum((2 * _radius(len(part)) + 1.0) ** 2 for part in parts))  # how wide a row of them is
    for part in parts:
        radius = _radius(len(part))
        if left and left + 2 * radius > row:
            left, bottom, top = 0.0, top, top
        placed[list(part)] = radius * _around_0(weights[np.ix_(part, part)]) + (left + radius, bottom + radius)
        left, top = left + 2 * radius + 1.0, max(top, bottom + 2 * radius + 1.0)
    return placed * (1.0, -1.0)  # the largest on top


def graph_figure(
    weights: np.ndarray,
    values: np.ndarray,
    what: str,
    sent_bytes: np.ndarray | None = None,
    names: Sequence[str] = (),
    title: str = "",
) -> "Figure":
    """The graph, its nodes coloured by `values` [N] (`what` they are, with the unit), its edges by the bytes on them.

    `names` are written into the nodes, where there are few enough; without any, the numbers from 0.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    panel: Axes = figure.subplots()
    panel.set_axis_off()
    panel.set_aspect("equal")
    panel.margins(0.08)
    if title:
        panel.set_title(title, fontsize=10)
    placed = positions(weights)
    _draw_edges(panel, placed, edges(np.maximum(weights, weights.T)), sent_bytes)
    _draw_nodes(panel, placed, np.asarray(values, dtype=np.float64), what, names or _numbers(len(weights)))
    return figure


def edges_figure(sent_bytes: np.ndarray, names: Sequence[str] = (), title: str = "") -> "Figure":
    """The heat map of bytes from every sender (row) to every receiver (column), [N, N]; white: nothing was sent."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    clients = len(sent_bytes)
    unit, bytes_per_unit = _unit(sent_bytes)
    figure = Figure(figsize=(7.2, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    panel: Axes = figure.subplots()
    panel.grid(visible=False)
    shown = np.ma.masked_equal(sent_bytes / bytes_per_unit, 0.0)
    heat = panel.imshow(shown, cmap=_HEAT_COLOURS, norm=_norm(shown.compressed()), interpolation="nearest")
    step = -(-clients // _MOST_NAMES)
    ticks = range(0, clients, step)
    said = [(names or _numbers(clients))[tick] for tick in ticks]
    size = 8 if len(said) <= 20 else 6.5
    panel.set_yticks(ticks, said, fontsize=size)
    panel.set_xticks(ticks, said, fontsize=size, rotation=90 if sum(map(len, said)) > 60 else 0)
    panel.tick_params(length=0)
    for side in panel.spines.values():
        side.set_visible(True)
    panel.set_xlabel("receiver")
    panel.set_ylabel("sender")
    if title:
        panel.set_title(title, fontsize=10)
    if shown.count():
        figure.colorbar(heat, ax=panel, label=f"sent, {unit} (white: nothing)", shrink=0.85, aspect=30)
    if clients <= _MOST_NUMBERS:
        _write_numbers(panel, shown)
    return figure


def save_graph_picture(
    stem: Path | str,
    weights: np.ndarray,
    values: np.ndarray,
    what: str,
    sent_bytes: np.ndarray | None = None,
    names: Sequence[str] = (),
    title: str = "",
) -> tuple[Path, Path]:
    """Draw `graph_figure` into `stem`.png and `stem`.svg; equal arrays make equal files."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        return _saved(graph_figure(weights, values, what, sent_bytes, names, title), stem)


def save_edges_picture(
    stem: Path | str, sent_bytes: np.ndarray, names: Sequence[str] = (), title: str = ""
) -> tuple[Path, Path]:
    """Draw `edges_figure` into `stem`.png and `stem`.svg; equal arrays make equal files."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        return _saved(edges_figure(sent_bytes, names, title), stem)


def _saved(figure: "Figure", stem: Path | str) -> tuple[Path, Path]:
    png, svg = Path(f"{stem}.png"), Path(f"{stem}.svg")
    figure.savefig(png, dpi=200)
    figure.savefig(svg, metadata={"Date": None})
    return png, svg


def _radius(nodes: int) -> float:
    return math.sqrt(nodes) if nodes > 1 else 0.4


def _around_0(weights: np.ndarray) -> np.ndarray:
    """A connected graph's nodes in the unit circle, [N, 2]."""
    import networkx as nx

    nodes, pairs = len(weights), edges(np.maximum(weights, weights.T))
    if nodes == 1:
        return np.zeros((1, 2))
    graph = nx.Graph(pairs)
    if nodes > 2 and len(pairs) > _DENSE * nodes * (nodes - 1) / 2:
        found = nx.circular_layout(range(nodes))
    elif nodes <= _CLEAR:
        found = nx.kamada_kawai_layout(graph, weight=None)
    else:
        found = nx.spring_layout(graph, seed=_SEED, weight=None, iterations=200)
    placed = np.array([found[node] for node in range(nodes)])
    placed -= placed.mean(axis=0)
    return np.asarray(placed / np.hypot(*placed.T).max())


def _draw_edges(
    panel: "Axes", placed: np.ndarray, pairs: Sequence[tuple[int, int]], sent_bytes: np.ndarray | None
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    if not pairs:
        return
    width, alpha = min(2.4, max(0.25, 14.0 / math.sqrt(len(pairs)))), min(1.0, 4000.0 / len(pairs))
    lines: Any = placed[np.array(pairs)]
    if sent_bytes is None or not sent_bytes.any():
        panel.add_collection(LineCollection(lines, colors="#8c8c8c", linewidths=width, alpha=alpha, zorder=1))
        return
    unit, bytes_per_unit = _unit(sent_bytes)
    both = np.array([sent_bytes[k, other] + sent_bytes[other, k] for k, other in pairs]) / bytes_per_unit
    order = np.argsort(both, kind="stable")  # the busiest are drawn last, above the others
    shades = LinearSegmentedColormap.from_list("edges", [_LIGHTEST_EDGE, _DARKEST_EDGE])
    norm, widths = _norm(both), width * (0.5 + 0.5 * both[order] / both.max())
    panel.add_collection(
        LineCollection(lines[order], colors=shades(norm(both[order])), linewidths=widths, alpha=alpha, zorder=1)
    )
    scale = ScalarMappable(norm, shades)  # opaque, whatever shines through the lines
    panel.figure.colorbar(scale, ax=panel, label=f"edge: sent both ways, {unit}", shrink=0.6, aspect=30, pad=0.02)


def _draw_nodes(panel: "Axes", placed: np.ndarray, values: np.ndarray, what: str, names: Sequence[str]) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    known = values[np.isfinite(values)]
    norm = Normalize(*_range(known))
    size = min(620.0, max(24.0, 12000.0 / len(values)))
    colours = colormaps[_NODE_COLOURS].with_extremes(bad=_UNKNOWN)
    drawn = panel.scatter(
        placed[:, 0], placed[:, 1], s=size, c=values, cmap=colours, norm=norm, plotnonfinite=True, zorder=2,
        edgecolors="#303030", linewidths=0.6, clip_on=False,
    )  # fmt: skip
    if len(known):
        missing = " (white: none)" if len(known) < len(values) else ""
        panel.figure.colorbar(drawn, ax=panel, label=f"node: {what}{missing}", shrink=0.6, aspect=30, pad=0.02)
    if len(values) > _MOST_LABELS:
        return
    names = _short(names)
    text_size = min(9.0, 0.55 * math.sqrt(size) / max(1.0, max(map(len, names)) / 2.4))
    for (x, y), value, name in zip(placed, values, names, strict=True):
        colour = _readable_on(colours(norm(value))) if np.isfinite(value) else "black"
        panel.text(x, y, name, fontsize=text_size, color=colour, ha="center", va="center_baseline", zorder=3)


def _short(names: Sequence[str]) -> Sequence[str]:
    """Names without what all of them begin with, where there are too many to write them in full."""
    if len(names) <= _MOST_NUMBERS:
        return names
    differ = (place for place, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1)
    shared = next(differ, 0)
    return [name[shared:] for name in names]


def _write_numbers(panel: "Axes", shown: Any) -> None:
    from matplotlib import colormaps

    norm = _norm(shown.compressed())
    for sender, receiver in np.argwhere(~np.ma.getmaskarray(shown)):
        value = float(shown[sender, receiver])
        colour = _readable_on(colormaps[_HEAT_COLOURS](norm(value)))
        panel.text(receiver, sender, f"{value:.3g}", fontsize=8, color=colour, ha="center", va="center")


def _readable_on(background: Sequence[float]) -> str:
    red, green, blue, _ = background
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"


def _norm(amounts: np.ndarray) -> Any:
    """Amounts as colours, from 0, so that amounts that hardly differ look alike."""
    from matplotlib.colors import Normalize

    return Normalize(0.0, float(amounts.max(initial=0.0)) or 1.0)


def _range(known: np.ndarray) -> tuple[float, float]:
    """From the least to the largest; around it, where all are equal."""
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _unit(sent_bytes: np.ndarray) -> tuple[str, float]:
    most = int(sent_bytes.max(initial=0))
    return ("GB", 1e9) if most >= 2e9 else ("MB", 1e6) if most >= 2e5 else ("kB", 1e3)


def _numbers(nodes: int) -> list[str]:
    return [str(node) for node in range(nodes)]
