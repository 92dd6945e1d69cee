"""A comparison as one page."""

from launch.compare.comparing import Comparison, Line
from launch.compare.forms import accuracy_head, accuracy_row, cost_head, cost_row, remarks
from pflsim.report.page import Grid, Lines, Part, Section, Table, page
from pflsim.report.seeds import Interval, Points, accuracies, differences

_MOST_NAMED = 6
"""So many methods stand below the title; more are counted."""


def comparison_page(comparison: Comparison) -> str:
    """The page as HTML: for each column its pictures and tables, and how they are to be read."""
    sections = [Section(column or "Results", _parts(comparison, column)) for column in comparison.columns]
    sections.append(Section("How to read it", [Lines(remarks(comparison))]))
    methods = list(dict.fromkeys(line.label for line in comparison.lines))
    named = " · ".join(methods) if len(methods) <= _MOST_NAMED else f"{len(methods)} methods"
    return page("Comparison", sections, f"{named}; baseline: {comparison.baseline}")


def _parts(comparison: Comparison, column: str) -> list[Part]:
    lines = comparison.of(column)
    pictures = [accuracies([Points(line.label, list(line.percent().values())) for line in lines])]
    paired = [_interval(line, lines) for line in lines if line.difference is not None]
    if paired:
        pictures.append(differences(paired, comparison.baseline))
    strong = [number for number, line in enumerate(lines) if line.differs]
    accuracy = [accuracy_row(comparison, line) for line in lines]
    cost = [cost_row(comparison, line) for line in lines]
    return [
        Grid(pictures),
        Table(accuracy_head(comparison), accuracy, strong=strong[0] if len(strong) == 1 else None),
        Table(cost_head(comparison), cost, title="What it cost"),
    ]


def _interval(line: Line, lines: list[Line]) -> Interval:
    assert line.difference is not None
    base = next(other for other in lines if other.is_baseline).percent()
    ours = line.percent()
    each = [ours[seed] - base[seed] for seed in sorted(ours.keys() & base.keys())]
    return Interval(line.label, each, line.difference.low, line.difference.high, line.differs)
