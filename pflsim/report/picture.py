"""A picture of a page: traces and layout as plotly.js takes them, with what all pictures of a page have in common.

They are plain values (https://plotly.com/javascript/reference), because plotly's Python classes take longer to build
than drawing them; the tests check them against plotly's schema. Colours are those of `pflsim.record.plot`, which
colour-blind readers can tell apart; whatever is neither black nor white is readable on light and on dark paper.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pflsim.record.plot import COLOURS

BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, _ = COLOURS
GREY, LINE, GRID = "#8a8f98", "rgba(128,128,128,0.6)", "rgba(128,128,128,0.22)"
SCALE = "Viridis"
"""Even in lightness, and safe for colour-blind readers."""
METHODS = (*COLOURS[:-1], GREY)
"""Colours of runs side by side; no black, which is no colour on dark paper."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """One entry of a legend: a line, dashed or not, or a patch of a colour."""

    name: str
    colour: str
    shape: str = "patch"  # or line, dashed, dotted, dot


@dataclass(frozen=True)
class Picture:
    """One picture: what plotly.js draws, what stands around it, and how high it is."""

    traces: Sequence[Json]
    layout: Json
    about: str
    """One sentence for who cannot see it."""
    height_px: int = 320
    title: str = ""
    caption: str = ""
    legend: Sequence[Key] = ()
    kind: str = field(default="picture", init=False)

    def figure(self) -> Json:
        """What plotly.js is given."""
        return {"data": list(self.traces), "layout": _merged(_base(), self.layout | {"height": self.height_px})}


def axis(title: str = "", **more: Any) -> Json:
    """An axis in the style of all pages; `title` is what it shows, with the unit."""
    look = {
        "gridcolor": GRID,
        "linecolor": LINE,
        "tickcolor": LINE,
        "ticks": "outside",
        "ticklen": 4,
        "showline": True,
        "zeroline": False,
        "automargin": True,
        "title": {"text": title, "standoff": 8},
    }
    return _merged(look, more)


def bare_axis(**more: Any) -> Json:
    """An axis of which nothing is seen."""
    return {"visible": False, "showgrid": False, "zeroline": False} | more


def rows_axis(names: Sequence[str], title: str = "") -> Json:
    """A vertical axis with a row for each name, the first on top; where they are many, some are named."""
    return axis(
        title,
        type="category",
        categoryorder="array",
        categoryarray=list(names),
        autorange=False,
        showgrid=False,
        range=[len(names) - 0.5, -0.5],
        fixedrange=True,
        ticks="",
        showline=False,
        nticks=45,
        ticklabelstandoff=5,
    )


def colour_bar(title: str) -> Json:
    """What tells the values of colours."""
    look = {"thickness": 12, "outlinewidth": 0, "len": 0.92, "ticks": "outside", "ticklen": 4, "tickcolor": LINE}
    return look | {"title": {"text": title, "side": "right"}}


def plain(text: str) -> str:
    """Text for a picture, in which nothing is taken for markup."""
    return html.escape(text, quote=False)


def numbers(values: Iterable[float | None], digits: int = 6) -> list[float | None]:
    """Numbers short enough to travel: rounded to so many digits; None for what is none."""
    return [None if value is None or not math.isfinite(value) else _rounded(value, digits) for value in values]


def _rounded(value: float, digits: int) -> float:
    return int(value) if value == int(value) else float(f"{value:.{digits}g}")


def _base() -> Json:
    return {
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif", "size": 12.5},
        "margin": {"l": 48, "r": 14, "t": 10, "b": 42},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#20242b", "bordercolor": "#20242b", "font": {"color": "#ffffff"}, "align": "left"},
        "xaxis": axis(),
        "yaxis": axis(),
    }


def _merged(base: Json, more: Mapping[str, Any]) -> Json:
    """`base` with what `more` says besides or instead; tables in both are merged."""
    found = dict(base)
    for name, value in more.items():
        inner = found.get(name)
        both = isinstance(inner, dict) and isinstance(value, Mapping)
        found[name] = _merged(inner, value) if isinstance(inner, dict) and both else value
    return found
