"""How what `pflsim explain` and `check` print looks."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rich.table import Table

MOST_ACTORS = 8
"""So many rows has a table with a row per actor at most."""

_Row = TypeVar("_Row")


def table(title: str, *columns: str) -> Table:
    """An empty table without lines, the first column on the left, the others on the right."""
    shown = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        shown.add_column(column, justify="right" if number else "left")
    return shown


def some_of(rows: Sequence[_Row], shown: Table, which: str) -> Sequence[_Row]:
    """All rows, or the first and the last where they are many; then the caption of `shown` says `which` they are."""
    half = MOST_ACTORS // 2
    if len(rows) <= MOST_ACTORS:
        return rows
    shown.caption = f"of {len(rows)} {which.format(half=half)}"
    shown.caption_justify = "left"
    return [*rows[:half], *rows[-half:]]


def graph_in_words(facts: Mapping[str, Any]) -> str:
    """What `Topology.facts` tells, on one line."""
    weighed = "" if facts["weights"] == "own" else f", {facts['weights']} weights"
    links = f"{facts['edges']:,} edges, degrees {facts['least_degree']} to {facts['largest_degree']}"
    parts = "1 component" if facts["components"] == 1 else f"{facts['components']} components"
    return (
        f"{facts['name']}{weighed}{', round 1, as it changes' * facts['changes']}: {facts['nodes']} nodes, "
        f"{links} (mean {facts['mean_degree']:.3g}), {parts}, "
        f"lambda_max {facts['lambda_max']:.4g}, spectral gap {facts['spectral_gap']:.3g}"
    )
