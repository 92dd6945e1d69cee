"""Accuracy against what it cost: the front of the best, where names stand, and what a sweep reads for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

from launch.sweep.figures import figures
from launch.sweep.files import markdown, table_rows
from launch.sweep.page import sweep_page
from launch.sweep.plan import Plan
from launch.sweep.reading import FAILED, Outcome
from pflsim.errors import DescriptionError
from pflsim.report.tradeoff import Paid, front, tradeoff
from pflsim.sweep import made_sweep
from tests.browsing import TIMEOUT_S, chromium
from tests.test_report_page import assert_drawn_alike
from tests.test_report_page import figures as drawn
from tests.test_sweep import plan_of, reached, row, tables


def test_the_front_has_those_that_no_other_beats_for_as_little() -> None:
    assert front([(2.0, 90.0), (1.0, 80.0), (3.0, 89.0), (4.0, 91.0), (1.0, 70.0), (4.0, 91.0)]) == [1, 0, 3]
    assert front([(1.0, 5.0)]) == [0] and front([]) == []


def test_every_seed_and_every_mean_is_drawn_and_the_best_are_linked() -> None:
    methods = [Paid("a", [1.0, 1.0], [80.0, 82.0]), Paid("b", [30.0, 50.0], [90.0, 92.0]), Paid("c", [40.0], [85.0])]
    picture = tradeoff(methods, "MB up")
    plotly.graph_objects.Figure(picture.figure())
    seeds, line, others, best = picture.traces
    assert (seeds["x"], seeds["y"]) == ([1.0, 1.0, 30.0, 50.0, 40.0], [80.0, 82.0, 90.0, 92.0, 85.0])
    assert (line["x"][:2], line["y"]) == ([1.0, 40.0], [81.0, 91.0, 91.0])
    assert (others["text"], best["text"], best["y"]) == (["c"], ["a", "b"], [81.0, 91.0])
    assert picture.layout["xaxis"]["type"] == "log"
    assert [note["text"] for note in picture.layout["annotations"]] == ["a", "b", "c"]
    free = tradeoff([Paid("local", [0.0], [90.0]), methods[1]], "MB")
    assert "type" not in free.layout["xaxis"], "0 has no logarithm"


def test_names_of_points_that_lie_together_stand_apart() -> None:
    crowd = [Paid(f"method number {one}", [5.0 + one / 100], [90.0 + one / 1000]) for one in range(6)]
    picture = tradeoff([Paid("far", [1.0], [50.0]), *crowd], "MB")
    places = {(note["ax"], note["ay"], note["xanchor"]) for note in picture.layout["annotations"][1:]}
    assert len(places) == 6


def costly(percent: float, up: int, down: int) -> Outcome:
    traffic = {"payload_bytes_up": up, "payload_bytes_down": down, "payload_bytes_peer": 0}
    return replace(reached(percent), summary={"traffic": traffic, "time": {"simulated_s": 2.5}})


def plan(folder: Path, against: str) -> Plan:
    given = tables(row=[row(), row("B & C")], column=[{"name": "few"}])
    given["sweep"] |= {"against": against}
    found = plan_of(given, folder)
    for seed, (percent, up) in enumerate([(90.0, 1_000_000), (92.0, 3_000_000)]):
        found.failed[found.reported(found.sweep.cells[0])[seed].key] = costly(percent, up, 500_000)  # type: ignore[index]
    found.failed[found.reported(found.sweep.cells[0])[2].key] = Outcome(FAILED, "as planned")  # type: ignore[index]
    return found


@pytest.mark.parametrize(
    ("against", "head", "cost"),
    [("bytes_up", "MB up", "2.00"), ("bytes_down", "MB down", "0.50"), ("bytes", "MB", "2.50"),
     ("simulated_s", "simulated s", "2.50")],
)  # fmt: skip
def test_a_sweep_tells_what_its_runs_cost_in_the_mean_over_those_that_ended_well(
    tmp_path: Path, against: str, head: str, cost: str
) -> None:
    found = plan(tmp_path, against)
    assert figures(found)["FedAvg", "few"].cost == cost
    shown = markdown(found).splitlines()
    assert shown[2] == f"| method | few | {head} |" and shown[4] == f"| FedAvg | 91.00 ± 1.41 (2/3) | {cost} |"
    assert table_rows(found)[0]["cost"] == float(cost) and table_rows(found)[0]["against"] == against
    assert f"- {head}: " in markdown(found)


@pytest.mark.timeout(TIMEOUT_S)
def test_the_page_draws_accuracy_against_it(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(sweep_page(plan(tmp_path, "bytes_up")))
    seen: Any = drawn((tmp_path / "page.html").read_text())
    every = seen[0]["data"][0]
    assert (every["x"], every["y"]) == ([1.0, 3.0] * 2, [90.0, 92.0] * 2), "both rows have the same runs"
    assert [note["text"] for note in seen[0]["layout"]["annotations"]] == ["FedAvg", "B &amp; C"]
    with chromium() as browser:
        assert_drawn_alike(browser, tmp_path / "page.html", 2)


def test_seeds_that_are_no_list_are_refused_with_what_one_looks_like() -> None:
    given = tables()
    given["sweep"] = {"seeds": 3}
    with pytest.raises(DescriptionError, match=r"^sweep\.seeds = 3: must be a list, such as \[1, 2, 3\]$"):
        made_sweep(given)


def test_what_cannot_be_drawn_against_is_refused() -> None:
    given = tables()
    given["sweep"] |= {"against": "money"}
    with pytest.raises(DescriptionError, match=r"^sweep\.against = 'money': .*bytes_up"):
        made_sweep(given)
