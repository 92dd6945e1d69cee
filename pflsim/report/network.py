"""Pictures of peers: who is linked with whom, what passed each edge and how old it was, and how far models differ."""

from collections.abc import Sequence

import numpy as np

from pflsim.record.graph import positions
from pflsim.record.sizes import unit_of
from pflsim.report.picture import METHODS, SCALE, Json, Picture, axis, bare_axis, colour_bar, numbers, plain, rows_axis
from pflsim.topology import edges

_MOST_EDGES = 4000
_MOST_CELLS = 150
_SMALLEST_PX, _LARGEST_PX = 6.0, 26.0
_WIDTHS_PX = (0.6, 1.2, 2.0, 3.0, 4.2)


def graph(
    weights: np.ndarray, values: np.ndarray, what: str, unit: str, sent_bytes: np.ndarray, names: Sequence[str]
) -> Picture:
    """The graph of weights [N, N], nodes coloured by `values` [N] (nan: none), edges by bytes [N, N]."""
    placed = positions(weights)
    pairs = edges(np.maximum(weights, weights.T))
    both = np.array([sent_bytes[k, other] + sent_bytes[other, k] for k, other in pairs], dtype=np.float64)
    kept = np.argsort(-both, kind="stable")[:_MOST_EDGES]
    traces = _edges(placed, [pairs[at] for at in kept], both[kept])
    known = np.isfinite(values)
    nodes: Json = {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(placed[:, 0]),
        "y": numbers(placed[:, 1]),
        "text": [plain(name) for name in names],
        "customdata": numbers(values, 4),
        "marker": {
            "size": _node_px(placed),
            "color": numbers(values, 5),
            "colorscale": SCALE,
            "showscale": bool(known.any()),
            "colorbar": colour_bar(f"{what}, {unit}"),
            "line": {"width": 1, "color": "rgba(128,128,128,0.9)"},
        },
        "hovertemplate": f"%{{text}}<br>{what}: %{{customdata:.4~g}} {unit}<extra></extra>",
    }
    layout = {"xaxis": bare_axis(), "yaxis": bare_axis(scaleanchor="x"), "margin": {"l": 8, "r": 8, "t": 8, "b": 8}}
    said = "The thicker an edge, the more bytes passed it." if both.any() else ""
    said += f" The {len(kept)} busiest of {len(pairs)} edges." if len(kept) < len(pairs) else ""
    return Picture([*traces, nodes], layout, f"The graph of peers, coloured by {what}.", 460, caption=said.strip())


def edge_heat(values: np.ndarray, names: Sequence[str], what: str, unit: str, axes: tuple[str, str]) -> Picture | None:
    """A number for each ordered pair of peers [N, N] (nan: none); None if they are too many, or all 0."""
    if len(names) > _MOST_CELLS or not np.nan_to_num(values).any():
        return None
    shown = [plain(name) for name in names]
    trace = {
        "type": "heatmap",
        "x": shown,
        "y": shown,
        "z": [numbers(row, 4) for row in values],
        "colorscale": SCALE,
        "reversescale": True,
        "zmin": 0,
        "zmax": float(np.nanmax(values)),
        "colorbar": colour_bar(f"{what}, {unit}"),
        "hovertemplate": f"{axes[0]} %{{y}}, {axes[1]} %{{x}}<br>%{{z:.4~g}} {unit}<extra></extra>",
    }
    layout = {"xaxis": axis(axes[1], type="category", nticks=12, showgrid=False), "yaxis": rows_axis(shown, axes[0])}
    return Picture([trace], layout, f"{what} for each pair of peers.", min(620, 110 + 11 * len(names)))


def bytes_heat(sent_bytes: np.ndarray, names: Sequence[str]) -> Picture | None:
    """Bytes from every sender to every receiver."""
    unit, bytes_per_unit = unit_of(float(sent_bytes.max(initial=0)))
    values = np.where(sent_bytes > 0, sent_bytes / bytes_per_unit, np.nan)
    return edge_heat(values, names, "sent", unit, ("sender", "receiver"))


def consensus(course: Sequence[tuple[int, float]]) -> Picture:
    """How far the models of peers are from each other, over rounds; logarithmic where it pays."""
    distances = [distance for _, distance in course]
    is_wide = min(distances) > 0 and max(distances) > 10 * min(distances)
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(course) < 40 else "lines",
        "x": [round for round, _ in course],
        "y": numbers(distances, 5),
        "line": {"color": METHODS[0], "width": 2.4},
        "hovertemplate": "round %{x}<br>%{y:.4~g}<extra></extra>",
    }
    look = {"type": "log", "dtick": 1} if is_wide else {"rangemode": "tozero"}
    layout = {"xaxis": axis("round of each peer"), "yaxis": axis("consensus distance", **look)}
    caption = "The mean over peers of ‖w − w̄‖², the squared distance of a model w from the mean w̄ of all."
    return Picture([trace], layout, "The consensus distance over rounds.", 300, caption=caption)


def _node_px(placed: np.ndarray) -> float:
    """As large as nodes can be without touching, within reason, in a picture of some 400 pixels."""
    if len(placed) < 2:
        return _LARGEST_PX
    apart = np.hypot(*(placed[:, None] - placed[None]).transpose(2, 0, 1))
    nearest = float((apart + np.diag(np.full(len(placed), np.inf))).min())
    extent = float(np.ptp(placed, axis=0).max()) or 1.0
    return float(np.clip(0.62 * 380 * nearest / extent, _SMALLEST_PX, _LARGEST_PX))


def _edges(placed: np.ndarray, pairs: Sequence[tuple[int, int]], both: np.ndarray) -> list[Json]:
    """The edges as a few lines with gaps, one for each thickness."""
    most = float(both.max(initial=0.0))
    level = np.full(len(pairs), 1) if not most else np.ceil(both / most * len(_WIDTHS_PX)).clip(1).astype(int) - 1
    found = []
    for number, width in enumerate(_WIDTHS_PX):
        x: list[float | None] = []
        y: list[float | None] = []
        for at in np.flatnonzero(level == number):
            k, other = pairs[int(at)]
            x += [placed[k, 0], placed[other, 0], None]
            y += [placed[k, 1], placed[other, 1], None]
        if x:
            scale = 1.0 if len(pairs) < 400 else 0.6
            line = {"color": "rgba(128,128,128,0.55)", "width": scale * width, "simplify": False}
            found.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": numbers(x, 4),
                    "y": numbers(y, 4),
                    "line": line,
                    "hoverinfo": "skip",
                }
            )
    return found
