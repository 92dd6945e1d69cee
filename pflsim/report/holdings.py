"""The picture of who holds what: bubbles for the samples of each class at each client."""

import math
from collections.abc import Sequence

from pflsim.report.picture import BLUE, SCALE, Json, Picture, axis, colour_bar, plain

_MOST_BUBBLES = 2500
_LARGEST_PX = 26.0


def partition(names: Sequence[str], labels: Sequence[Sequence[int]], counts: Sequence[Sequence[int]]) -> Picture | None:
    """Training samples by client and label, for N clients: their labels and how many samples have each of them.

    Up to some thousand bubbles, whose areas are the counts; beyond, a heat map. None where nobody has labels.
    """
    classes = sorted({label for own in labels for label in own})
    if not classes:
        return None
    height = min(900, max(220, 80 + 24 * len(classes)))
    about = f"Training samples of each of {len(classes)} classes at each of {len(names)} clients."
    y = axis(
        "class",
        type="category",
        categoryorder="array",
        categoryarray=[str(one) for one in classes],
        nticks=40,
        showgrid=len(classes) <= 40,
    )
    layout = {
        "xaxis": axis(
            "client",
            type="category",
            categoryorder="array",
            categoryarray=list(names),
            nticks=12,
            range=[-0.8, len(names) - 0.2],
            showgrid=False,
        ),
        "yaxis": y,
    }
    if sum(map(len, labels)) <= _MOST_BUBBLES:
        trace, caption = _bubbles(names, labels, counts), "The area of a bubble is the number of training samples."
    else:
        trace, caption = _heat(names, labels, counts, classes), "Clients are too many for bubbles; empty: no sample."
    return Picture([trace], layout, about, height, caption=caption)


def sizes(names: Sequence[str], training: Sequence[int], test: Sequence[int]) -> Picture:
    """How many samples each client has, for training and for testing, the largest first."""
    order = sorted(range(len(names)), key=lambda client: (-training[client], client))
    shown = [names[client] for client in order]
    traces = [
        {
            "type": "bar",
            "x": shown,
            "y": [values[client] for client in order],
            "name": what,
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": f"%{{x}}<br>%{{y}} for {what}<extra></extra>",
        }
        for what, values, colour in (("training", training, BLUE), ("testing", test, "#E69F00"))
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.1,
        "yaxis": axis("samples"),
        "xaxis": axis("client, by training samples", type="category", nticks=12, showgrid=False),
    }
    return Picture(traces, layout, "Samples of each client, for training and for testing.", 260)


def _bubbles(names: Sequence[str], labels: Sequence[Sequence[int]], counts: Sequence[Sequence[int]]) -> Json:
    x, y, found = [], [], []
    for name, own, held in zip(names, labels, counts, strict=True):
        for label, count in zip(own, held, strict=True):
            x.append(plain(name))
            y.append(str(label))
            found.append(count)
    largest = max(found)
    room = max(6.0, min(_LARGEST_PX, 950 / max(1, len(names))))
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "customdata": found,
        "marker": {
            "size": [round(max(2.5, room * math.sqrt(count / largest)), 1) for count in found],
            "color": BLUE,
            "opacity": 0.75,
            "line": {"width": 0},
        },
        "hovertemplate": "%{x}, class %{y}<br>%{customdata} samples<extra></extra>",
    }


def _heat(
    names: Sequence[str], labels: Sequence[Sequence[int]], counts: Sequence[Sequence[int]], classes: Sequence[int]
) -> Json:
    rows: list[list[int | None]] = [[None] * len(names) for _ in classes]
    place = {label: row for row, label in enumerate(classes)}
    for client, (own, held) in enumerate(zip(labels, counts, strict=True)):
        for label, count in zip(own, held, strict=True):
            rows[place[label]][client] = count
    return {
        "type": "heatmap",
        "x": [plain(name) for name in names],
        "y": [str(one) for one in classes],
        "z": rows,
        "colorscale": SCALE,
        "reversescale": True,
        "colorbar": colour_bar("samples"),
        "zmin": 0,
        "zmax": max(count for own in counts for count in own),
        "hovertemplate": "%{x}, class %{y}<br>%{z} samples<extra></extra>",
    }
