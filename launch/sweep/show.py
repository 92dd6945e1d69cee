"""What `pflsim sweep` prints: the plan, and the table, as wide as the terminal allows."""

from collections.abc import Sequence

from rich.measure import Measurement
from rich.table import Table

from launch.screen import fitted
from launch.show import Screen
from launch.sweep.figures import (
    WORDS,
    column_table,
    figures,
    how_it_was_made,
    trials_in_words,
    warnings_in_words,
    what_went_wrong,
)
from launch.sweep.files import in_column, wide_rows
from launch.sweep.plan import Plan
from pflsim.sweep import Cell

_MOST_WRONG = 20
_WIDER_THAN_ANY = 10_000


def show_table(plan: Plan) -> None:
    """Print the table in one piece, or, where that is too wide, a block for each column; then how it was made."""
    console = Screen()
    wide = _table("", *wide_rows(plan))
    whole = console.options.update(max_width=_WIDER_THAN_ANY)  # a measure is never more than its options allow
    if Measurement.get(console, whole, wide).maximum <= console.width:
        console.print(wide)
    else:
        for block in _blocks(plan):
            console.print(block)
            console.print()
    trials = trials_in_words(plan)
    wrong = [*what_went_wrong(plan), *warnings_in_words(plan)]
    more = [f"and {len(wrong) - _MOST_WRONG} more"] if len(wrong) > _MOST_WRONG else []
    lines = [*how_it_was_made(plan), *(["trials (* chosen), % on validation:"] if trials else [])]
    lines += [*(f"  {line}" for line in trials), *wrong[:_MOST_WRONG], *more]
    for line in lines:
        console.print(fitted(line, 4, console.width), markup=False)


def _blocks(plan: Plan) -> list[Table]:
    found = figures(plan)
    return [_table(column, *column_table(in_column(found, column))) for column in plan.sweep.columns]


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in head:
        is_text = name in WORDS
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def show_plan(plan: Plan, cells: Sequence[Cell]) -> None:
    """Print what would be run and what is there already."""
    console = Screen()
    rows = []
    for cell in cells:
        trials, reported = plan.trials(cell), plan.reported(cell)
        there = sum(plan.outcome(run) is not None for run in [*trials, *(reported or ())])
        rows.append([cell.row.name, cell.column, str(len(trials)), str(len(plan.sweep.seeds)), str(there)])
    console.print(_table("", ["method", "column", "trials", "seeds", "there"], rows))
    left = plan.remaining(cells)
    console.print(f"{left} runs to be made (cells that read other models of one run share it)", markup=False)
