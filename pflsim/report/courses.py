"""Pictures of how good the models became: accuracy over the course of a run, and over its clients."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from pflsim.errors import few
from pflsim.record.accuracy import Point
from pflsim.record.sizes import unit_of
from pflsim.report.page import Grid
from pflsim.report.picture import GREY, METHODS, Json, Key, Picture, axis, numbers, plain

_MOST_WORST = 3  # runs whose worst tenth is drawn too: with more of them nobody could tell the lines apart
_MOST_POINTS = 1500  # of a line
_DASHES = ("solid", "dash", "dot")


def colour_of(index: int) -> str:
    """The colour of run number `index` of those side by side."""
    return METHODS[index % len(METHODS)]


def courses(curves: Mapping[str, Sequence[Point]], own: str) -> Grid | None:
    """Accuracy over rounds, simulated time, bytes and gradients, for runs by label; None if nobody was evaluated.

    The run called `own` is drawn thicker, and last.
    """
    shown = {label: _thinned(curve) for label, curve in curves.items() if curve}
    if not shown:
        return None
    unit, bytes_per_unit = unit_of(max(point.payload_bytes for curve in shown.values() for point in curve))
    panels: list[tuple[str, str, Callable[[Point], float]]] = [
        ("round", "round", lambda point: point.round),
        ("simulated time", "simulated time, s", lambda point: point.simulated_s),
        ("payload", f"payload sent, {unit}", lambda point: point.payload_bytes / bytes_per_unit),
        ("gradients", "gradients of samples, million", lambda point: point.gradients / 1e6),
    ]
    legend = _legend(curves, shown)
    pictures = [
        _course(shown, list(curves), own, title, position, legend)
        for what, title, position in panels
        if what in ("round", "simulated time") or any(position(curve[-1]) for curve in shown.values())
    ]
    return Grid(pictures, _caption(shown))


def distribution(
    last: Mapping[str, Mapping[int, float]], first: Mapping[int, float], own: str, names: Sequence[str]
) -> Picture:
    """Every client's accuracy, from the worst to the best, by run: {client: fraction}; `first` is of the run `own`."""
    traces, legend = [], []
    for index, (label, found) in enumerate(last.items()):
        traces.append(_ranked(found, names, label, colour_of(index), 3.0 if label == own else 1.8, "solid"))
        legend.append(Key(label, colour_of(index), "line"))
    if first:
        traces.insert(0, _ranked(first, names, f"{own}, first evaluation", GREY, 2.0, "dot"))
        legend.append(Key(f"{own}, first evaluation", GREY, "dotted"))
    layout = {
        "xaxis": axis("clients, from the worst to the best, %", range=[0, 100]),
        "yaxis": axis("accuracy of a client, %"),
    }
    about = "Accuracy of each client on its own test data, sorted from the worst client to the best, for each run."
    return Picture(traces, layout, about, 360, legend=legend if len(legend) > 1 else ())


def gains(
    own: Mapping[int, float], other: Mapping[int, float], own_name: str, other_name: str, names: Sequence[str]
) -> Picture:
    """Every client's accuracy beside what it has under another method: above the line it gained."""
    both = sorted(own.keys() & other.keys())
    x, y = [100 * other[client] for client in both], [100 * own[client] for client in both]
    low = min([*x, *y], default=0.0)
    low = max(0.0, low - 3)
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": [low, 101],
        "y": [low, 101],
        "hoverinfo": "skip",
        "line": {"color": GREY, "width": 1.2, "dash": "dot"},
    }
    layout = {
        "xaxis": axis(f"accuracy with {plain(other_name)}, %", range=[low, 101]),
        "yaxis": axis(f"accuracy with {plain(own_name)}, %", range=[low, 101]),
    }
    said = "gain, {} lose, {} are the same. The area of a dot is its number of clients."
    better = sum(high > less for high, less in zip(y, x, strict=True))
    worse = sum(high < less for high, less in zip(y, x, strict=True))
    caption = f"{better} clients {said.format(worse, len(both) - better - worse)}"
    about = f"Accuracy of each client with {own_name} over its accuracy with {other_name}."
    dots = _dots(x, y, [names[client] for client in both], own_name, other_name)
    return Picture([line, dots], layout, about, 360, caption=caption)


def _dots(x: Sequence[float], y: Sequence[float], names: Sequence[str], own_name: str, other_name: str) -> Json:
    """A dot for each place, as large as the number of clients there."""
    together: defaultdict[tuple[float, float], list[str]] = defaultdict(list)
    for name, place in zip(names, zip(x, y, strict=True), strict=True):
        together[place].append(name)
    return {
        "type": "scatter",
        "mode": "markers",
        "cliponaxis": False,
        "x": numbers(place[0] for place in together),
        "y": numbers(place[1] for place in together),
        "text": [plain(few(found)) for found in together.values()],
        "marker": {
            "size": [round(7 * math.sqrt(len(found)), 1) for found in together.values()],
            "opacity": 0.7,
            "color": METHODS[0],
            "line": {"width": 0},
        },
        "hovertemplate": (
            f"{plain(own_name)} %{{y:.1f}} %, {plain(other_name)} %{{x:.1f}} %<br>%{{text}}<extra></extra>"
        ),
    }


def _course(
    shown: Mapping[str, Sequence[Point]],
    order: Sequence[str],
    own: str,
    title: str,
    position: Callable[[Point], float],
    legend: Sequence[Key],
) -> Picture:
    traces: list[Json] = []
    for label in sorted(shown, key=lambda one: one == own):
        curve, index = shown[label], order.index(label)
        x = numbers(position(point) for point in curve)
        if len(x) > 1 and x[0] == x[-1]:  # what sends nothing has no course over bytes
            continue
        colour, width = colour_of(index), 2.8 if label == own else 1.8
        dash = _DASHES[index // len(METHODS) % len(_DASHES)]
        if len(shown) == 1:
            traces += _band(x, curve, colour)
        elif len(shown) <= _MOST_WORST:
            worst = numbers((100 * point.accuracy.worst_decile for point in curve), 5)
            traces.append(_line(x, worst, f"{label}, worst tenth", colour, 1.1, "dot"))
        weighted = numbers((100 * point.accuracy.weighted for point in curve), 5)
        traces.append(_line(x, weighted, label, colour, width, dash, markers=len(curve) == 1))
    layout = {
        "xaxis": axis(title, rangemode="normal" if title == "round" else "tozero"),
        "yaxis": axis("test accuracy, %", nticks=7),
        "hovermode": "closest",
    }
    return Picture(traces, layout, f"Test accuracy of {', '.join(shown)} over {title}.", 300, legend=legend)


def _line(
    x: list[float | None], y: list[float | None], name: str, colour: str, width: float, dash: str, markers: bool = False
) -> Json:
    return {
        "type": "scatter",
        "mode": "markers" if markers else "lines",
        "x": x,
        "y": y,
        "name": plain(name),
        "line": {"color": colour, "width": width, "dash": dash},
        "marker": {"color": colour, "size": 9},
        "hovertemplate": f"{plain(name)}<br>%{{y:.1f}} % at %{{x:.4~g}}<extra></extra>",
    }


def _band(x: list[float | None], curve: Sequence[Point], colour: str) -> list[Json]:
    """From the worst to the best tenth of clients."""
    bounds = [
        numbers((100 * value for value in values), 5)
        for values in (
            [point.accuracy.worst_decile for point in curve],
            [point.accuracy.best_decile for point in curve],
        )
    ]
    rgb = ",".join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    edge = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip"}
    return [edge | {"y": bounds[0]}, edge | {"y": bounds[1], "fill": "tonexty", "fillcolor": f"rgba({rgb},0.16)"}]


def _legend(curves: Mapping[str, Sequence[Point]], shown: Mapping[str, Sequence[Point]]) -> list[Key]:
    if len(shown) == 1:
        return []
    return [Key(label, colour_of(index), "line") for index, label in enumerate(curves) if label in shown]


def _caption(shown: Mapping[str, Sequence[Point]]) -> str:
    said = ["Lines: accuracy weighted by test samples."]
    if len(shown) == 1:
        said.append("Band: from the worst to the best tenth of clients.")
    elif len(shown) <= _MOST_WORST:
        said.append("Dotted: the worst tenth of clients.")
    if any(len(curve) > 1 and not curve[-1].payload_bytes for curve in shown.values()):
        said.append("What sends nothing has no line over payload.")
    return " ".join([*said, "Drag to look closer; a double click shows all again."])


def _ranked(found: Mapping[int, float], names: Sequence[str], label: str, colour: str, width: float, dash: str) -> Json:
    order = sorted(found, key=lambda client: (found[client], client))
    share = [100 * (place + 0.5) / len(order) for place in range(len(order))]
    return {
        "type": "scatter",
        "mode": "lines" if len(order) > 1 else "markers",
        "x": numbers(share),
        "y": numbers((100 * found[client] for client in order), 5),
        "text": [names[client] for client in order],
        "line": {"color": colour, "width": width, "dash": dash, "shape": "linear"},
        "marker": {"color": colour, "size": 9},
        "hovertemplate": f"{plain(label)}<br>%{{text}}: %{{y:.1f}} %<extra></extra>",
    }


def _thinned(curve: Sequence[Point]) -> Sequence[Point]:
    step = -(-len(curve) // _MOST_POINTS)
    return curve if step <= 1 else [*curve[:-1:step], curve[-1]]
