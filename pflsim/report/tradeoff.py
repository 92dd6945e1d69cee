"""What methods reach against what they cost: every seed a point, means with names, and the front of the best."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from pflsim.report.picture import BLUE, GREY, LINE, Json, Key, Picture, axis, plain

_WIDTH_PX, _HEIGHT_PX = 1000, 460
"""Of the area between the axes for which names are placed; on other screens they keep their distance to the points."""
_ROOM = 0.06
_DECADE = 10
_MARK_PX, _NAME_PX, _LETTER_PX = 12, 15, 6.6
_FAR_PX = 20
"""A name that stands farther than that from its point is linked with it by a line."""
_WAYS = ((1, 0), (-1, 0), (1, -1), (1, 1), (-1, -1), (-1, 1), (0, -1), (0, 1))
_DISTANCES_PX = (11, 18, 28, 40, 54, 70)

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


@dataclass(frozen=True)
class Paid:
    """A method: for each seed what its run cost, and what it reached."""

    label: str
    costs: Sequence[float]
    values: Sequence[float]

    @property
    def mean(self) -> tuple[float, float]:
        """Over seeds, of both."""
        return fmean(self.costs), fmean(self.values)


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which of some (cost, value) no other one beats: those with more value than all that cost as little, by cost."""
    found: list[int] = []
    for place in sorted(range(len(points)), key=lambda place: (points[place][0], -points[place][1])):
        if not found or points[place][1] > points[found[-1]][1]:
            found.append(place)
    return found


def tradeoff(methods: Sequence[Paid], cost: str, unit: str = "test accuracy, %") -> Picture:
    """Values against `cost` (its name, with the unit), on a logarithmic axis where the costs span a decade."""
    means = [one.mean for one in methods]
    best = front(means)
    every = [(x, y) for one in methods for x, y in zip(one.costs, one.values, strict=True)]
    least, most = min(x for x, _ in every), max(x for x, _ in every)
    is_log = least > 0 and most >= _DECADE * least
    along: Callable[[float], float] = math.log10 if is_log else float
    ranges = _widened([along(x) for x, _ in every]), _widened([y for _, y in every])
    traces = [_marks(every, GREY, 5, 0.45)]
    edge = [*(means[place] for place in best), (10 ** ranges[0][1] if is_log else ranges[0][1], means[best[-1]][1])]
    stairs = {"mode": "lines", "line": {"color": BLUE, "width": 1.5, "shape": "hv", "dash": "dot"}}
    traces.append(_marks(edge, BLUE, 0, 1.0) | stairs)
    for colour, places in ((GREY, [place for place in range(len(methods)) if place not in best]), (BLUE, best)):
        named = {"text": [plain(methods[place].label) for place in places]}
        traces.append(_marks([means[place] for place in places], colour, _MARK_PX, 1.0) | named)
    layout = {
        "xaxis": axis(cost, range=ranges[0], **(_ticks(least, most) if is_log else {})),
        "yaxis": axis(unit, range=ranges[1]),
        "annotations": _names(methods, ranges, along, [means[place] for place in best]),
    }
    names = ", ".join(methods[place].label for place in best)
    about = f"What {len(methods)} methods reach against {cost}; best for what they cost: {names}."
    legend = [Key("a method in the mean, a seed", GREY, "dot"), Key("no other does better for as little", BLUE, "dot")]
    return Picture(traces, layout, about, _HEIGHT_PX + 60, legend=legend)


def _marks(points: Sequence[tuple[float, float]], colour: str, size: int, opacity: float) -> Json:
    look = {"type": "scatter", "mode": "markers", "marker": {"size": size, "color": colour, "opacity": opacity}}
    shown = {"hovertemplate": "%{text} %{x:.3~g}: %{y:.2f}<extra></extra>", "text": [""] * len(points)}
    return look | shown | {"x": [x for x, _ in points], "y": [y for _, y in points]}


def _widened(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    room = _ROOM * (high - low) or 0.5
    return [low - room, high + room]


def _ticks(least: float, most: float) -> Json:
    """A logarithmic axis with the numbers 1, 2 and 5 times powers of ten."""
    decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
    values = [float(f"{first}e{decade}") for decade in decades for first in (1, 2, 5)]
    return {"type": "log", "tickvals": values, "ticktext": [f"{value:g}" for value in values]}


def _names(
    methods: Sequence[Paid],
    ranges: Sequence[Sequence[float]],
    along: Callable[[float], float],
    best: Sequence[tuple[float, float]],
) -> list[Json]:
    """An annotation for each method, where it covers no point, no other name and not the front, if there is room."""
    (left, right), (low, high) = ranges

    def at(x: float, y: float) -> tuple[float, float]:
        return _WIDTH_PX * (along(x) - left) / (right - left), _HEIGHT_PX * (high - y) / (high - low)

    taken = [_around(at(*one.mean), _MARK_PX) for one in methods]
    taken += [_around(at(x, y), 5) for one in methods for x, y in zip(one.costs, one.values, strict=True)]
    ends = [*(at(*point)[0] for point in best[1:]), _WIDTH_PX]
    taken += [(at(x, y)[0], at(x, y)[1] - 1, end, at(x, y)[1] + 1) for (x, y), end in zip(best, ends, strict=True)]
    found = []
    for one in methods:
        width = len(one.label) * _LETTER_PX
        dx, dy, box = min(_places(at(*one.mean), width), key=lambda place: _cost(place, taken))
        taken.append(box)
        is_far = math.hypot(dx, dy) > _FAR_PX
        arrow = {"showarrow": True, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": LINE if is_far else "rgba(0,0,0,0)"}
        where = {"x": along(one.mean[0]), "y": one.mean[1], "ax": dx, "ay": dy, "standoff": _MARK_PX / 2}
        anchors = {"xanchor": ("right", "center", "left")[(dx > 0) - (dx < 0) + 1], "yanchor": "middle"}
        found.append({"text": plain(one.label), "font": {"size": 12}, "borderpad": 0} | arrow | where | anchors)
    return found


def _around(point: tuple[float, float], size: float) -> Box:
    x, y = point
    return x - size / 2, y - size / 2, x + size / 2, y + size / 2


def _places(point: tuple[float, float], width: float) -> list[tuple[float, float, Box]]:
    """Where the name of a point may stand: its distance from it, and its box."""
    found: list[tuple[float, float, Box]] = []
    for distance in _DISTANCES_PX:
        for across, down in _WAYS:
            dx, dy = across * distance * (0.7 if down else 1), down * distance
            x, y = point[0] + dx, point[1] + dy
            left = x - width * (1 - across) / 2
            found.append((dx, dy, (left, y - _NAME_PX / 2, left + width, y + _NAME_PX / 2)))
    return found


def _cost(place: tuple[float, float, Box], taken: Sequence[Box]) -> float:
    """How badly a name would stand: what it covers and what lies outside of the picture, then how far off it is."""
    dx, dy, (left, top, right, bottom) = place
    covered = sum(
        max(0.0, min(right, other[2]) - max(left, other[0]) + 4) * max(0.0, min(bottom, other[3]) - max(top, other[1]))
        for other in taken
    )
    outside = max(0.0, -left) + max(0.0, right - _WIDTH_PX) + max(0.0, -top) + max(0.0, bottom - _HEIGHT_PX)
    return covered + _NAME_PX * outside + math.hypot(dx, dy)
