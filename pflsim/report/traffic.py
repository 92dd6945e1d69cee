"""Pictures of what travelled: bytes by client, by kind and over rounds."""

from collections import Counter
from collections.abc import Mapping, Sequence

from pflsim.record.cost import RoundCost
from pflsim.record.sizes import unit_of
from pflsim.report.picture import BLUE, METHODS, ORANGE, Key, Picture, axis, numbers, plain, rows_axis

_MOST_ROUNDS = 400


def by_client(sent: Mapping[str, int], received: Mapping[str, int], clients: Sequence[str], of: int) -> Picture:
    """Bytes that these clients sent and received, `of` so many in all."""
    unit, bytes_per_unit = unit_of(max((sent[one] + received[one] for one in clients), default=0))
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [plain(one) for one in clients],
            "name": what,
            "x": numbers((found[one] / bytes_per_unit for one in clients), 4),
            "marker": {"color": colour},
            "hovertemplate": f"%{{y}} {what} %{{x:.3~g}} {unit}<extra></extra>",
        }
        for what, found, colour in (("sent", sent, ORANGE), ("received", received, BLUE))
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.18,
        "yaxis": rows_axis([plain(one) for one in clients]),
        "xaxis": axis(f"payload and headers, {unit}"),
    }
    caption = f"The {len(clients)} busiest of {of} clients." if len(clients) < of else ""
    return Picture(
        traces,
        layout,
        "Bytes that each client sent and received.",
        70 + 17 * max(3, len(clients)),
        title="By client",
        caption=caption,
        legend=[Key("sent", ORANGE), Key("received", BLUE)],
    )


def over_rounds(rounds: Sequence[RoundCost], kinds: Mapping[str, Counter[int]]) -> Picture | None:
    """Bytes of each round by kind; None for fewer than two rounds."""
    if len(rounds) < 2:
        return None
    width = -(-len(rounds) // _MOST_ROUNDS)
    numbers_of = [one.round for one in rounds][::width]
    unit, bytes_per_unit = unit_of(max(one.charged_bytes for one in rounds) * width)
    traces, legend = [], []
    for index, (kind, found) in enumerate(sorted(kinds.items())):
        sums = [sum(found[one.round] for one in rounds[at : at + width]) for at in range(0, len(rounds), width)]
        colour = METHODS[index % len(METHODS)]
        traces.append(
            {
                "type": "bar",
                "x": numbers_of,
                "y": numbers((one / bytes_per_unit for one in sums), 4),
                "name": plain(kind),
                "marker": {"color": colour, "line": {"width": 0}},
                "hovertemplate": f"{plain(kind)}, round %{{x}}<br>%{{y:.3~g}} {unit}<extra></extra>",
            }
        )
        legend.append(Key(kind, colour))
    each = "round" if width == 1 else f"{width} rounds, from"
    layout = {
        "barmode": "stack",
        "bargap": 0.12,
        "xaxis": axis(each, showgrid=False),
        "yaxis": axis(f"payload and headers, {unit}"),
    }
    return Picture(traces, layout, "Bytes of each round, by kind.", 270, title="By round", legend=legend)
