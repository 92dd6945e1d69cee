"""Pictures of time: who did what when (a Gantt chart) in a window of a run, and for whom the rounds waited."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pflsim.record.critical_path import Blame, CriticalPath, blamed
from pflsim.record.history import SERVER, WAIT, History, Period
from pflsim.record.plot import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _VERMILION, _GREEN, _PINK, _ORANGE, _SKY, _BLACK = COLOURS

KINDS = {
    "computing": ("compute", _BLUE),
    "aggregating": ("aggregate", _GREEN),
    "mixing": ("mix", _PINK),
    "lost work": ("lost", _VERMILION),
    "away": ("offline", "#bbbbbb"),
    "message under way to it": ("down", _SKY),
    "message under way from it": ("up", _ORANGE),
}
"""What is drawn, by its name in the legend: a key, and a colour."""

_KIND_OF = {
    "aggregate": "aggregate",
    "mix": "mix",
    "offline": "offline",
    "idle": "offline",
    "lost work": "lost",
    "lost send": "lost",
}
_MOST_NAMES = 60
_MOST_BARS = 30

Window = tuple[int, int]
Bars = dict[str, dict[str, list[Window]]]


def window_of(periods: Sequence[Period], first: int, last: int) -> Window:
    """The window in ns from the start of round `first` to the end of round `last`; ValueError if there is none."""
    found = [period for period in periods if first <= period.round <= last]
    if not found:
        raise ValueError(f"no round from {first} to {last} was recorded")
    return found[0].start_ns, found[-1].end_ns


def bars(history: History, window: Window) -> Bars:
    """What is seen of each actor in the window, by actor and kind: (start, length) in ns, clipped to the window."""
    found: Bars = {actor: {} for actor in history.actors}
    seen = [(span.actor, _KIND_OF.get(span.what, "compute"), span.start_ns, span.end_ns)
            for spans in history.spans.values() for span in spans if span.what != WAIT]  # fmt: skip
    for one in history.transits():
        seen.append((one.client, "down" if one.sender == SERVER else "up", one.departure_ns, one.arrival_ns))
    for actor, kind, start_ns, end_ns in seen:
        start_ns, end_ns = max(start_ns, window[0]), min(end_ns, window[1])
        if end_ns > start_ns:
            found[actor].setdefault(kind, []).append((start_ns, end_ns - start_ns))
    return found


def timeline_figure(history: History, window: Window, title: str = "") -> "Figure":
    """The Gantt chart of a window: a row per actor, a server on top, and a line where a round ends."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = bars(history, window)
    unit_ns, unit = _unit(window[1] - window[0])
    height = min(12.0, 1.3 + 0.16 * len(drawn))
    figure = Figure(figsize=(10, height), layout="constrained")
    FigureCanvasAgg(figure)
    panel: Axes = figure.subplots()
    _draw_bars(panel, drawn, unit_ns)
    for period in history.rounds:
        if window[0] < period.end_ns < window[1]:
            panel.axvline(period.end_ns / unit_ns, color=_BLACK, linewidth=0.6)
    panel.set_xlim(window[0] / unit_ns, window[1] / unit_ns)
    panel.set_ylim(len(drawn) - 0.5, -0.5)
    _name_rows(panel, list(drawn))
    line = "all have done a round" if history.has_peers else "a round ends"
    panel.set_xlabel(f"simulated time, {unit} (lines: {line})")
    lines, labels = panel.get_legend_handles_labels()
    if lines:
        legend = figure.legend(lines, labels, loc="outside upper center", ncols=len(lines), frameon=False)
        legend.set_title(title)
    return figure


def waiting_figure(paths: Sequence[CriticalPath]) -> "Figure":
    """For whom rounds (or peers) waited, on their critical paths: a bar each, parted by what it did meanwhile."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    clients = [one for one in blamed(paths) if one.actor != SERVER]
    shown = clients[:_MOST_BARS]
    unit_ns, unit = _unit(max((one.total_ns for one in shown), default=1))
    figure = Figure(figsize=(8, 1.3 + 0.2 * max(3, len(shown))), layout="constrained")
    FigureCanvasAgg(figure)
    panel: Axes = figure.subplots()
    _draw_waiting(panel, paths, shown, unit_ns)
    panel.set_yticks(range(len(shown)), [one.actor for one in shown])
    panel.set_ylim(max(3, len(shown)) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="y", visible=False)
    if any(path.owner != SERVER for path in paths):
        panel.set_xlabel(f"how long all peers together waited for it, directly or through others, {unit}")
    else:
        panel.set_xlabel(f"how long the rounds waited for it, {unit}")
    lines, labels = panel.get_legend_handles_labels()
    if lines:
        figure.legend(lines, labels, loc="outside upper center", ncols=len(lines), frameon=False)
    if len(shown) < len(clients):
        figure.supxlabel(f"the first {len(shown)} of {len(clients)}", fontsize=7.5, color="#666666")
    return figure


def save_pictures(
    history: History, paths: Sequence[CriticalPath], window: Window, directory: Path | str, title: str = ""
) -> list[Path]:
    """Draw the timeline of `window` and the waiting into timeline.* and waiting.* (png and svg) in `directory`."""
    import matplotlib as mpl

    saved: list[Path] = []
    with mpl.rc_context(STYLE):
        for name, figure in (("timeline", timeline_figure(history, window, title)), ("waiting", waiting_figure(paths))):
            png, svg = Path(directory) / f"{name}.png", Path(directory) / f"{name}.svg"
            figure.savefig(png, dpi=200)
            figure.savefig(svg, metadata={"Date": None})
            saved += [png, svg]
    return saved


WAITED_WHILE = {
    "it computed": _BLUE,
    "messages were under way": _ORANGE,
    "it was away or its work was lost": "#bbbbbb",
}


def waited_while(paths: Sequence[CriticalPath], actors: Sequence[str]) -> dict[str, dict[str, int]]:
    """For how many ns each of `actors` was waited for on these paths, by what it did meanwhile."""
    sums = {actor: dict.fromkeys(WAITED_WHILE, 0) for actor in actors}
    for path in paths:
        for part in path.parts:
            if part.actor in sums and part.actor != path.owner:
                sums[part.actor][_while(part.what)] += part.duration_ns
    return sums


def _draw_waiting(panel: "Axes", paths: Sequence[CriticalPath], shown: Sequence[Blame], unit_ns: int) -> None:
    sums = waited_while(paths, [one.actor for one in shown])
    named: set[str] = set()
    for row, by_kind in enumerate(sums.values()):
        left = 0.0
        for kind, colour in WAITED_WHILE.items():
            width = by_kind[kind] / unit_ns
            if width:
                label = None if kind in named else kind
                named.add(kind)
                panel.barh(row, width, left=left, height=0.8, color=colour, linewidth=0, label=label)
                left += width


def _draw_bars(panel: "Axes", drawn: Bars, unit_ns: int) -> None:
    for name, (kind, colour) in KINDS.items():
        some = False
        for row, by_kind in enumerate(drawn.values()):
            pieces = [(start_ns / unit_ns, length_ns / unit_ns) for start_ns, length_ns in by_kind.get(kind, [])]
            if pieces:
                label = None if some else name
                panel.broken_barh(pieces, (row - 0.4, 0.8), facecolors=colour, linewidth=0, label=label)
                some = True


def _while(what: str) -> str:
    computed, under_way, away = WAITED_WHILE
    return computed if what in ("compute", "mix") else away if _KIND_OF.get(what) in ("offline", "lost") else under_way


def _name_rows(panel: "Axes", actors: Sequence[str]) -> None:
    step = -(-len(actors) // _MOST_NAMES)
    rows = [0, *range(1, len(actors), step)]
    panel.set_yticks(rows, [actors[row] for row in rows], fontsize=7)
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="y", visible=False)


def _unit(longest_ns: int) -> tuple[int, str]:
    units: Mapping[str, int] = {"h": 3600 * 10**9, "s": 10**9, "ms": 10**6, "µs": 10**3}
    return next(((unit_ns, name) for name, unit_ns in units.items() if longest_ns >= 2 * unit_ns), (1, "ns"))
