"""A sweep as one page: a picture and a table for each column, every trial, and how it was made."""

from launch.sweep.along import along_a_number
from launch.sweep.figures import (
    COSTS,
    WORDS,
    Figure,
    column_table,
    figures,
    how_it_was_made,
    row_name,
    trials_in_words,
    warnings_in_words,
    what_went_wrong,
)
from launch.sweep.files import as_toml, in_column
from launch.sweep.plan import Plan
from pflsim.report.page import Folded, Lines, Part, Remarks, Section, Table, page
from pflsim.report.picture import Picture
from pflsim.report.seeds import Points, accuracies
from pflsim.report.tradeoff import Paid, tradeoff


def sweep_page(plan: Plan) -> str:
    """The page as HTML, of what is known by now."""
    found = figures(plan)
    sections = [Section(column or "Results", _parts(plan, in_column(found, column))) for column in plan.sweep.columns]
    if trials := trials_in_words(plan):
        lead = "Per cent on validation data; * is what was chosen. Test data were not looked at."
        sections.append(Section("Trials", [Lines(trials)], lead))
    wrong = [*what_went_wrong(plan), *warnings_in_words(plan)]
    notes: list[Part] = [Remarks(wrong)] if wrong else []
    notes += [Lines(how_it_was_made(plan)), Folded("The sweep's description", as_toml(plan.sweep))]
    seeds = ", ".join(map(str, plan.sweep.seeds))
    return page(plan.sweep.name, [*sections, Section("How it was made", notes)], f"seeds {seeds}")


def _parts(plan: Plan, own: list[Figure]) -> list[Part]:
    head, rows = column_table(own)
    words = frozenset(place for place, name in enumerate(head) if name in WORDS)
    points = [Points(row_name(one.cell.row), list(one.values.values()), one.cell.paper) for one in own]
    seen: list[Part] = [accuracies(points)] if any(one.values for one in points) else []
    return [*along_a_number(plan, own), *_against_cost(own), *seen, Table(head, rows, left=words)]


def _against_cost(own: list[Figure]) -> list[Picture]:
    """Accuracy against what `sweep.against` names, of the rows of which there are runs."""
    found = [
        Paid(one.cell.row.name, [one.costs[seed] for seed in one.values], list(one.values.values()))
        for one in own
        if one.against and one.values
    ]
    return [tradeoff(found, f"{COSTS[own[0].against]}, all clients together")] if own[0].against and found else []
