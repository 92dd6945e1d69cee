"""Pictures of time: who did what when, for whom others waited, how each spent its time, and the slowest rounds."""

from collections.abc import Mapping, Sequence

from pflsim.record.critical_path import CriticalPath
from pflsim.record.durations import duration
from pflsim.record.history import SERVER, History
from pflsim.record.shares import Shares
from pflsim.record.timeline import KINDS, WAITED_WHILE, Bars, Window, bars, waited_while
from pflsim.report.picture import (
    BLUE,
    GREEN,
    LINE,
    ORANGE,
    PINK,
    SKY,
    Json,
    Key,
    Picture,
    axis,
    numbers,
    plain,
    rows_axis,
)

_MOST_PIECES = 12_000
_MOST_LINES = 400
_MOST_ROWS = 41
_ROW_PX = 15
_AWAY = "#b5b9c0"

SPENT = {"computing": BLUE, "sending": ORANGE, "offline": _AWAY, "waiting": "rgba(128,128,128,0.25)"}


def unit_of_time(longest_ns: int) -> tuple[str, int]:
    """The unit for an axis that goes up to so many ns, and how many ns it is."""
    units = (("h", 3600 * 10**9), ("s", 10**9), ("ms", 10**6), ("µs", 10**3))
    return next(((name, unit_ns) for name, unit_ns in units if longest_ns >= 2 * unit_ns), ("ns", 1))


def timeline(history: History, windows: Sequence[Window], first: Window, most_waited: Sequence[str]) -> Picture | None:
    """The Gantt chart of as much of a run as can be drawn, which shows the window `first` until it is moved.

    `windows` are those of the rounds, in their order. Of many actors it shows those that were waited for most, and some
    of the others.
    """
    actors = chosen(history.actors, most_waited)
    if not windows or not actors:
        return None
    drawn, until_ns = _as_much_as_can_be_drawn(history, windows, actors)
    name, unit_ns = unit_of_time(first[1] - first[0])
    rows = [plain(actor) for actor in actors]
    traces = [
        _pieces(drawn, actors, key, kind, colour, unit_ns, name)
        for kind, (key, colour) in KINDS.items()
        if any(key in by_kind for by_kind in drawn.values())
    ]
    legend = [Key(kind, colour) for kind, (key, colour) in KINDS.items() if any(key in own for own in drawn.values())]
    layout = {
        "xaxis": axis(f"simulated time, {name}", range=[first[0] / unit_ns, first[1] / unit_ns], showgrid=False),
        "yaxis": rows_axis(rows),
        "shapes": _ends_of_rounds(history, until_ns, unit_ns),
        "dragmode": "zoom",
    }
    return Picture(
        traces,
        layout,
        "What each actor did over simulated time.",
        60 + _ROW_PX * len(rows) + 20,
        legend=legend,
        caption=_timeline_caption(history, len(actors), until_ns),
    )


def _as_much_as_can_be_drawn(history: History, windows: Sequence[Window], actors: Sequence[str]) -> tuple[Bars, int]:
    """The stretches of `actors` until the end of some window, the last one if they are not too many by then."""
    ends_ns = sorted({end_ns for _, end_ns in windows})
    whole = bars(history, (0, ends_ns[-1]))
    starts_ns = sorted(start_ns for actor in actors for own in whole[actor].values() for start_ns, _ in own)
    if len(starts_ns) > _MOST_PIECES:
        last_ns = starts_ns[_MOST_PIECES]
        ends_ns = [end_ns for end_ns in ends_ns if end_ns <= last_ns] or ends_ns[:1]
    drawn = bars(history, (0, ends_ns[-1]))
    return {actor: drawn[actor] for actor in actors}, ends_ns[-1]


def _ends_of_rounds(history: History, until_ns: int, unit_ns: int) -> list[Json]:
    ends = [period.end_ns / unit_ns for period in history.rounds if period.end_ns <= until_ns]
    line = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": LINE, "width": 1}}
    return [line | {"x0": at, "x1": at} for at in numbers(ends[:_MOST_LINES], 9)]


def chosen(actors: Sequence[str], wanted: Sequence[str], most: int = _MOST_ROWS) -> list[str]:
    """All actors, or so many of them, in their order: the server, half of `wanted`, and others at even distances."""
    if len(actors) <= most:
        return list(actors)
    kept = {SERVER} & set(actors) | set(list(wanted)[: most // 2])
    others = [actor for actor in actors if actor not in kept]
    room = most - len(kept)
    kept |= {others[place * len(others) // room] for place in range(room)}
    return [actor for actor in actors if actor in kept]


def waiting(paths: Sequence[CriticalPath], clients: Sequence[str], of: int) -> Picture | None:
    """For whom rounds (or peers) waited, the longest first, and what it did meanwhile; `of` so many in all."""
    sums = waited_while(paths, clients)
    longest_ns = max((sum(own.values()) for own in sums.values()), default=0)
    if not longest_ns:
        return None
    name, unit_ns = unit_of_time(longest_ns)
    traces = [
        _bar(clients, [sums[client][kind] / unit_ns for client in clients], kind, colour, name)
        for kind, colour in WAITED_WHILE.items()
    ]
    whose = "all peers together" if any(path.owner != SERVER for path in paths) else "the rounds"
    layout = {
        "barmode": "stack",
        "bargap": 0.18,
        "yaxis": rows_axis([plain(client) for client in clients]),
        "xaxis": axis(f"how long {whose} waited for it, {name}"),
    }
    caption = f"The first {len(clients)} of {of} that were waited for." if len(clients) < of else ""
    return Picture(
        traces,
        layout,
        f"How long {whose} waited for each client.",
        70 + 19 * max(3, len(clients)),
        title="Who was waited for",
        caption=caption,
        legend=[Key(kind, colour) for kind, colour in WAITED_WHILE.items()],
    )


def spending(shares: Sequence[Shares]) -> Picture:
    """How each actor spent its time, in per cent."""
    names = [one.actor for one in shares]
    parts_ns = [(one.computing_ns, one.sending_ns, one.offline_ns, one.waiting_ns) for one in shares]
    traces = [
        _bar(names, [100 * own_ns[place] / (sum(own_ns) or 1) for own_ns in parts_ns], what, colour, "%")
        for place, (what, colour) in enumerate(SPENT.items())
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.18,
        "yaxis": rows_axis([plain(name) for name in names]),
        "xaxis": axis("share of the simulated time, %", range=[0, 100]),
    }
    return Picture(
        traces,
        layout,
        "How each actor spent its simulated time.",
        60 + _ROW_PX * max(3, len(names)) + 20,
        title="How each spent its time",
        legend=[Key(what, colour) for what, colour in SPENT.items()],
    )


STRETCHES = {
    "computing": BLUE,
    "under way": ORANGE,
    "sharing or waiting for a link": SKY,
    "away or lost": _AWAY,
    "the server's own work": GREEN,
    "mixing": PINK,
    "waiting": "rgba(128,128,128,0.25)",
}


def slowest(paths: Sequence[CriticalPath]) -> Picture:
    """What the time of these rounds (or steps) went into, each from its start."""
    name, unit_ns = unit_of_time(max(path.duration_ns for path in paths))
    rows = [_called(path) for path in paths]
    traces: list[Json] = []
    for what, colour in STRETCHES.items():
        found = [
            (row, part, path.period.start_ns)
            for row, path in zip(rows, paths, strict=True)
            for part in path.parts
            if _stretch(part.what) == what
        ]
        if found:
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "y": [row for row, _, _ in found],
                    "name": what,
                    "base": numbers((part.start_ns - start_ns) / unit_ns for _, part, start_ns in found),
                    "x": numbers(part.duration_ns / unit_ns for _, part, _ in found),
                    "text": [plain(f"{part.actor}: {part.what}, {duration(part.duration_ns)}") for _, part, _ in found],
                    "textposition": "none",
                    "marker": {"color": colour, "line": {"width": 0}},
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    layout = {
        "barmode": "overlay",
        "bargap": 0.35,
        "yaxis": rows_axis(rows),
        "xaxis": axis(f"since its start, {name}", rangemode="tozero"),
    }
    legend = [Key(trace["name"], STRETCHES[trace["name"]]) for trace in traces]
    return Picture(traces, layout, "The critical paths of the slowest rounds.", 70 + 40 * len(rows), legend=legend)


def _called(path: CriticalPath) -> str:
    number = f"round {path.period.round}"
    return number if path.owner == SERVER else plain(f"{path.owner}, {number}")


def _stretch(what: str) -> str:
    if what in ("compute", "evaluate"):
        return "computing"
    if what in ("offline", "idle", "lost work", "lost send", "cancelled"):
        return "away or lost"
    if what.startswith(("sharing", "waiting for")):
        return "sharing or waiting for a link"
    return {"aggregate": "the server's own work", "mix": "mixing", "wait": "waiting", "deadline": "waiting"}.get(
        what, "under way"
    )


def _pieces(
    drawn: Mapping[str, Mapping[str, Sequence[Window]]],
    actors: Sequence[str],
    key: str,
    kind: str,
    colour: str,
    unit_ns: int,
    unit: str,
) -> Json:
    """All stretches of a kind as one line with gaps: thousands of bars of their own would be slow to move."""
    x: list[float | None] = []
    y: list[str | None] = []
    for actor in actors:
        for start_ns, length_ns in drawn[actor].get(key, ()):
            x += [start_ns / unit_ns, (start_ns + length_ns) / unit_ns, None]
            y += [plain(actor), plain(actor), None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": numbers(x, 9),
        "y": y,
        "line": {"color": colour, "width": 9, "simplify": False},
        "hovertemplate": f"%{{y}}: {kind}<br>%{{x:.6~g}} {unit}<extra></extra>",
    }


def _bar(names: Sequence[str], values: Sequence[float], what: str, colour: str, unit: str) -> Json:
    return {
        "type": "bar",
        "orientation": "h",
        "y": [plain(name) for name in names],
        "x": numbers(values, 4),
        "name": what,
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": f"%{{y}}: {plain(what)}<br>%{{x:.3~g}} {unit}<extra></extra>",
    }


def _timeline_caption(history: History, shown: int, until_ns: int) -> str:
    line = "all have done a round" if history.has_peers else "a round ends"
    said = [f"A grey line: {line}. Drag to look closer, double click to see more and all."]
    if until_ns < history.end_ns:
        said.append(f"It goes to {duration(until_ns)}, the run to {duration(history.end_ns)}.")
    if shown < len(history.actors):
        said.append(f"{shown} of {len(history.actors)} actors: who was waited for most, and some others.")
    return " ".join(said)
