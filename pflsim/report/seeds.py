"""Pictures of methods over seeds: every seed a point, the mean a line, and what a paper states beside them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import fmean

from pflsim.report.picture import (
    BLUE,
    GREY,
    LINE,
    METHODS,
    ORANGE,
    VERMILION,
    Json,
    Key,
    Picture,
    axis,
    plain,
    rows_axis,
)

_ROW_PX, _HEAD_PX = 26, 84


@dataclass(frozen=True)
class Points:
    """One method: a value per seed."""

    label: str
    values: Sequence[float]
    published: float | None = None


@dataclass(frozen=True)
class Interval:
    """One method less another: a value per seed, and an interval for the mean; `stands_out` if it excludes 0."""

    label: str
    values: Sequence[float]
    low: float
    high: float
    stands_out: bool


@dataclass(frozen=True)
class Along:
    """A method at some numbers of a setting: for each number a value per seed."""

    label: str
    values: Mapping[float, Sequence[float]]


def along(setting: str, lines: Sequence[Along], stars: Sequence[Along], unit: str = "test accuracy, %") -> Picture:
    """Means as lines along a number, every seed a point; a star where a method has chosen that number itself."""
    traces, legend = [], []
    colours = dict(zip([one.label for one in (*lines, *stars)], cycle(METHODS)))
    for one in lines:
        colour = colours[one.label]
        dots = [(number, value) for number, own in one.values.items() for value in own]
        traces.append(_scatter(dots, "markers", {"marker": {"size": 6, "color": colour, "opacity": 0.6}}))
        means = [(number, fmean(own)) for number, own in one.values.items()]
        traces.append(_scatter(means, "lines", {"line": {"color": colour, "width": 2.4}}))
        legend.append(Key(one.label, colour, "line"))
    for one in stars:
        look = {"symbol": "star", "size": 17, "color": colours[one.label], "line": {"width": 1, "color": GREY}}
        means = [(number, fmean(own)) for number, own in one.values.items()]
        traces.append(_scatter(means, "markers", {"marker": look}))
        legend.append(Key(f"{one.label} (star: what it chose, in the mean)", colours[one.label], "dot"))
    about = f"Accuracy along {setting} of {len(lines)} methods; stars: {len(stars)} that choose it themselves."
    layout = {"xaxis": axis(plain(setting)), "yaxis": axis(unit)}
    return Picture(traces, layout, about, 340, legend=legend)


def _scatter(points: Sequence[tuple[float, float]], mode: str, look: Json) -> Json:
    x, y = [number for number, _ in points], [value for _, value in points]
    shown = {"hovertemplate": "%{x:.4~g}: %{y:.2f}<extra></extra>"}
    return {"type": "scatter", "mode": mode, "x": x, "y": y} | look | shown


def accuracies(methods: Sequence[Points], unit: str = "test accuracy, %") -> Picture:
    """A row per method, the first on top."""
    labels = _labels([one.label for one in methods])
    traces: list[Json] = [_dots(labels, [one.values for one in methods], BLUE)]
    traces += [_means(labels, [one.values for one in methods])]
    published = [
        (label, one.published) for label, one in zip(labels, methods, strict=True) if one.published is not None
    ]
    legend = [Key("a seed", BLUE, "dot"), Key("mean", GREY, "line")]
    if published:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [figure for _, figure in published],
                "y": [label for label, _ in published],
                "marker": {"symbol": "diamond-open", "size": 10, "color": ORANGE, "line": {"width": 2}},
                "hovertemplate": "%{x:.2f} published<extra></extra>",
            }
        )
        legend.append(Key("published", ORANGE, "dot"))
    about = f"Each seed of {len(methods)} methods, and their means."
    return _picture(traces, labels, unit, about, legend)


def differences(methods: Sequence[Interval], baseline: str) -> Picture:
    """A row per method: what it has more than `baseline`, seed by seed."""
    labels = _labels([one.label for one in methods])
    traces: list[Json] = []
    for label, one in zip(labels, methods, strict=True):
        colour = VERMILION if one.stands_out else GREY
        traces.append(_dots([label], [one.values], colour))
        if not math.isnan(one.low):
            line = {"color": colour, "width": 2.5}
            ends = {"type": "scatter", "mode": "lines", "x": [one.low, one.high], "y": [label, label], "line": line}
            traces.append(ends | {"hovertemplate": f"{one.low:+.2f} to {one.high:+.2f}<extra></extra>"})
    traces.append(_means(labels, [one.values for one in methods]))
    legend = [Key("differs", VERMILION, "line"), Key("may be none", GREY, "line")]
    about = f"What {len(methods)} methods have more than {baseline}, with 95 % intervals."
    zero = {"shapes": [{"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": LINE}}]}
    found = _picture(traces, labels, "points more than the baseline, same seed", about, legend)
    return Picture(found.traces, found.layout | zero, about, found.height_px, legend=legend)


def _picture(traces: Sequence[Json], labels: Sequence[str], unit: str, about: str, legend: Sequence[Key]) -> Picture:
    layout = {"yaxis": rows_axis(labels), "xaxis": axis(unit)}
    return Picture(traces, layout, about, _HEAD_PX + _ROW_PX * max(1, len(labels)), legend=legend)


def _labels(names: Sequence[str]) -> list[str]:
    return [plain(name) for name in names]


def _dots(labels: Sequence[str], values: Sequence[Sequence[float]], colour: str) -> Json:
    pairs = [(value, label) for label, own in zip(labels, values, strict=True) for value in own]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [value for value, _ in pairs],
        "y": [label for _, label in pairs],
        "marker": {"size": 9, "color": colour, "opacity": 0.8},
        "hovertemplate": "%{y}: %{x:.2f}<extra></extra>",
    }


def _means(labels: Sequence[str], values: Sequence[Sequence[float]]) -> Json:
    means = [(math.fsum(own) / len(own), label) for label, own in zip(labels, values, strict=True) if own]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [mean for mean, _ in means],
        "y": [label for _, label in means],
        "marker": {"symbol": "line-ns-open", "size": 16, "color": GREY, "line": {"width": 2.5}},
        "hovertemplate": "%{y}: mean %{x:.2f}<extra></extra>",
    }
