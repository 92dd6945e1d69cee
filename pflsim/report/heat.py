"""Heat maps of clients over rounds: who took part, and which cluster each client was in."""

from collections.abc import Mapping, Sequence

from pflsim.report.picture import METHODS, SCALE, Json, Key, Picture, axis, colour_bar, numbers, plain, rows_axis

_MOST_COLUMNS = 150
_MOST_COLOURS = 12
_MORE = ("#AA3377", "#999933", "#44AA99", "#8877DD", "#B8860B")
NONE = -1
"""The label of a client that is in no cluster yet."""


def participation(visits: Sequence[tuple[int, int]], names: Sequence[str], rounds: int) -> Picture:
    """How often each client was asked, over rounds: (round, client) for each visit."""
    width = max(1, -(-rounds // _MOST_COLUMNS))
    columns = -(-rounds // width)
    z: list[list[int | None]] = [[None] * columns for _ in names]
    for round, client in visits:
        column = (round - 1) // width
        z[client][column] = (z[client][column] or 0) + 1
    most = max((count for row in z for count in row if count), default=1)
    trace: Json = {
        "type": "heatmap",
        "x": [1 + column * width for column in range(columns)],
        "y": [plain(name) for name in names],
        "z": z,
        "zmin": 0,
        "zmax": most,
        "xgap": 1 if columns <= 80 else 0,
        "ygap": 1 if len(names) <= 80 else 0,
        "colorscale": SCALE if most > 1 else [[0, METHODS[0]], [1, METHODS[0]]],
        "reversescale": most > 1,
        "showscale": most > 1,
        "hovertemplate": "%{y}, round %{x}<br>%{z} visits<extra></extra>",
    }
    if most > 1:
        trace["colorbar"] = colour_bar("visits")
    title = "round" if width == 1 else f"round, {width} together"
    return Picture([trace], _layout(title, names), "Which clients were asked to work in which rounds.", _height(names))


def visit_counts(counts: Sequence[int], names: Sequence[str]) -> Picture:
    """How often each client was asked, all rounds together."""
    trace = {
        "type": "bar",
        "x": [plain(name) for name in names],
        "y": list(counts),
        "marker": {"color": METHODS[0]},
        "hovertemplate": "%{x}: %{y} visits<extra></extra>",
    }
    layout = {
        "xaxis": axis("client", type="category", nticks=12, showgrid=False),
        "bargap": 0.15,
        "yaxis": axis("visits", rangemode="tozero"),
    }
    return Picture([trace], layout, "How often each client was asked to work.", 240)


def clusters(labels: Mapping[int, Sequence[int]], names: Sequence[str]) -> Picture:
    """The cluster of each client after each round; clients that end in the same one stand together."""
    rounds = sorted(labels)
    rounds = rounds[:: max(1, -(-len(rounds) // _MOST_COLUMNS))]
    last = labels[rounds[-1]]
    order = sorted(range(len(names)), key=lambda client: (last[client] == NONE, last[client], client))
    known = sorted({label for row in labels.values() for label in row} - {NONE})
    place = {label: number for number, label in enumerate(known)}
    z = [[place.get(labels[round][client]) for round in rounds] for client in order]
    told = [
        [str(labels[round][client]) if labels[round][client] != NONE else "none" for round in rounds]
        for client in order
    ]
    palette = (*METHODS[:-1], *_MORE)
    colours = [palette[number % len(palette)] for number in range(max(1, len(known)))]
    trace = _stairs(rounds, [plain(names[client]) for client in order], z, told, colours)
    legend = [Key(f"cluster {label}", colour) for label, colour in zip(known, colours, strict=False)]
    more = f" There are {len(known)} clusters; colours repeat." if len(known) > len(palette) else ""
    caption = f"Rows: clients, by the cluster in which they end. Empty: in no cluster yet.{more}"
    shown = [names[client] for client in order]
    return Picture(
        [trace],
        _layout("round", shown),
        "The cluster of each client after each round.",
        _height(names),
        caption=caption,
        legend=legend if len(legend) <= _MOST_COLOURS else (),
    )


def cluster_count(counts: Mapping[int, int]) -> Picture:
    """How many clusters there were after each round."""
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": list(counts),
        "y": numbers(counts.values()),
        "line": {"shape": "hv", "color": METHODS[0], "width": 2.4},
        "hovertemplate": "round %{x}: %{y} clusters<extra></extra>",
    }
    layout = {"xaxis": axis("round"), "yaxis": axis("clusters", rangemode="tozero", tickformat="d", nticks=6)}
    return Picture([trace], layout, "The number of clusters over rounds.", 210)


def _stairs(
    rounds: Sequence[int],
    rows: Sequence[str],
    z: Sequence[Sequence[int | None]],
    told: Sequence[Sequence[str]],
    colours: Sequence[str],
) -> Json:
    """A heat map of numbers that are places among `colours`."""
    return {
        "type": "heatmap",
        "x": rounds,
        "y": rows,
        "z": z,
        "text": told,
        "zmin": -0.5,
        "zmax": len(colours) - 0.5,
        "colorscale": _steps(colours),
        "showscale": False,
        "xgap": 1 if len(rounds) <= 80 else 0,
        "ygap": 1 if len(rows) <= 80 else 0,
        "hovertemplate": "%{y}, round %{x}<br>cluster %{text}<extra></extra>",
    }


def _steps(colours: Sequence[str]) -> list[list[object]]:
    """A colour scale of stairs."""
    return [[(number + end) / len(colours), colour] for number, colour in enumerate(colours) for end in (0, 1)]


def _layout(title: str, names: Sequence[str]) -> Json:
    return {"xaxis": axis(title, showgrid=False, nticks=12), "yaxis": rows_axis([plain(name) for name in names])}


def _height(names: Sequence[str]) -> int:
    return min(760, max(180, 70 + 13 * len(names)))
