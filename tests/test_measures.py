"""What a method measures, as a run's report shows it; accuracy along a number; and how unlike clients are."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects
import pytest
import tomli_w
import torch
from click.testing import CliRunner

from launch.cli import pflsim
from launch.report_measures import matched
from launch.sweep.along import along_a_number
from launch.sweep.cache import NOTE
from launch.sweep.figures import figures as sweep_figures
from launch.sweep.files import in_column
from pflsim.errors import DescriptionError
from pflsim.learning.heterogeneity import heterogeneity, least_gamma_sq, sample_variance
from pflsim.record.database import Reader
from pflsim.report import measures
from pflsim.spec import validate
from pflsim.study import Study
from tests.browsing import TIMEOUT_S, chromium
from tests.launching import description
from tests.recorded import SMALL, finished_in
from tests.test_report_page import assert_drawn_alike, figures, report_of, section, titles
from tests.test_sweep import plan_of, reached, tables

CEDAR: dict[str, Any] = SMALL | {"algorithm": {"name": "fedcedar", "K": 2}}


def named(html: str, name: str) -> list[dict[str, Any]]:
    """The heat maps of a measure."""
    return [
        figure["data"][0]
        for figure in figures(html)
        if figure["data"][0].get("colorbar", {}).get("title", {}).get("text") == name
    ]


@pytest.mark.parametrize(("last", "shown"), [(1, [1]), (3, [1, 2, 3]), (50, [1, 4, 14, 50]), (200, [1, 6, 34, 200])])
def test_at_most_four_rounds_are_chosen_more_of_the_early_ones(last: int, shown: list[int]) -> None:
    assert measures.chosen(range(1, last + 1)) == shown and measures.chosen([]) == []


def test_numbers_are_lines_and_matrices_heat_maps_also_by_client(tmp_path: Path) -> None:
    html = report_of(tmp_path / "run", **CEDAR)
    assert "Measures" in titles(html) and "spread_after over rounds" in section(html, "Measures")
    of_clusters, of_clients = named(html, "r"), named(html, "r, by client")
    assert len(of_clusters) == len(of_clients) == 4
    with sqlite3.connect(tmp_path / "run" / "record.db") as database:
        (labels,) = database.execute("SELECT value FROM measures WHERE name = 'labels' AND round = 4").fetchone()
    k = {f"c{client:03d}": label for client, label in enumerate(np.frombuffer(labels, np.int64)[-6:].tolist())}
    small, large = of_clusters[-1]["z"], of_clients[-1]
    assert len(small) == 2 and len(large["z"]) == 6
    clients = [name.split(":")[0] for name in large["y"]]
    assert large["z"] == [[small[k[one]][k[other]] for other in clients] for one in clients]
    for figure in figures(html):
        plotly.graph_objects.Figure(figure)


def test_a_list_is_a_line_for_each_chosen_round_or_one_if_it_stays_the_same() -> None:
    assert len(measures.entries("q", {1: [0.5, 0.5], 2: [0.25, 0.75]}).traces) == 2
    (only,) = measures.entries("e", {number: [3.0, 2.0, 4.0] for number in range(1, 9)}).traces
    assert (only["x"], only["y"]) == ([1, 2, 3], [3.0, 2.0, 4.0])


def test_a_number_that_is_not_one_is_a_gap_and_one_that_changes_a_lot_has_a_logarithmic_axis() -> None:
    picture = measures.line("gap_sq", {1: 100.0, 2: None, 3: 1.0})
    assert picture.traces[0]["y"] == [100, None, 1] and picture.layout["yaxis"]["type"] == "log"
    assert "type" not in measures.line("K", {1: 3.0, 2: 4.0}).layout["yaxis"]


def test_clusters_with_new_numbers_in_each_round_are_matched_by_their_members() -> None:
    told = {1: [0, 0, 1, 1, -1], 2: [1, 1, 0, 0, 2], 3: [2, 1, 1, 1, 0]}
    assert matched(told) == {1: [0, 0, 1, 1, -1], 2: [0, 0, 1, 1, 2], 3: [0, 1, 1, 1, 2]}


@pytest.mark.timeout(TIMEOUT_S)
def test_a_browser_draws_the_measures(tmp_path: Path) -> None:
    report_of(tmp_path / "run", **CEDAR)
    with chromium() as browser:
        assert_drawn_alike(
            browser, tmp_path / "run" / "report.html", len(figures((tmp_path / "run" / "report.html").read_text()))
        )


def context_plan(folder: Path) -> Any:
    """CGPFL with 1 to 4 contexts, at 90, 94, 93 and 92 %, and CGPFL-Heur, whose run is there."""
    rows = [{"name": f"K = {K}", "algorithm": {"name": "cgpfl", "K": K}} for K in (1, 2, 3, 4)]
    heur = {"name": "Heur", "algorithm": {"name": "cgpfl-heur", "K": 3, "mu_h": 100.0}}
    given = tables(sweep={"seeds": [1]}, column=[{"name": "few"}], row=[*rows, heur])
    plan = plan_of(given, folder)
    for cell, percent in zip(plan.sweep.cells, (90.0, 94.0, 93.0, 92.0), strict=False):
        for run in plan.reported(cell) or ():
            plan.failed[run.key] = reached(percent)
    (run,) = plan.reported(plan.sweep.cells[-1]) or ()
    finished_in(folder / run.key, run.description.model_dump(mode="json", by_alias=True, exclude_unset=True))
    (folder / run.key / NOTE).write_text('{"code": "another"}')
    return plan


def test_rows_that_differ_in_one_number_are_a_line_and_who_chooses_it_a_star(tmp_path: Path) -> None:
    plan = context_plan(tmp_path)
    picture, beside = along_a_number(plan, in_column(sweep_figures(plan), "few"))
    points, means, star = picture.traces
    assert (means["x"], means["y"]) == ([1.0, 2.0, 3.0, 4.0], [90.0, 94.0, 93.0, 92.0])
    assert points["x"] == means["x"] and picture.layout["xaxis"]["title"]["text"] == "algorithm.K"
    (run,) = plan.reported(plan.sweep.cells[-1]) or ()
    with Reader(tmp_path / run.key / "record.db") as reader:
        ((chosen,),) = reader.query("SELECT value FROM measures WHERE name = 'K' AND round = 3")
    assert star["x"] == [chosen] and star["marker"]["symbol"] == "star"
    assert beside.traces[0]["x"] == [1, 2, 3] and np.argmin(beside.traces[0]["y"]) + 1 == chosen


def test_rows_of_different_methods_are_no_line(tmp_path: Path) -> None:
    plan = plan_of(tables(), tmp_path)
    assert along_a_number(plan, in_column(sweep_figures(plan), "few")) == []


def test_heterogeneity_within_and_between_groups_by_hand() -> None:
    """Groups {0, 2} around (1, 0) and {1, 3} around (-1, 0), two and one to either side; the mean is 0."""
    gradients = torch.tensor([[1.0, 2.0], [-1.0, 1.0], [1.0, -2.0], [-1.0, -1.0]])
    found = heterogeneity(gradients, ((0, 2), (1, 3)))
    assert (found.gamma, found.alpha, found.alpha_rms) == (2.0, 1.0, 1.0)
    assert found.gamma_rms == pytest.approx(np.sqrt(2.5))
    alone = heterogeneity(gradients, ((0,), (1,), (2,), (3,)))
    assert alone.gamma == 0.0 and alone.alpha == pytest.approx(np.sqrt(5))


def test_the_condition_of_corollary_3_2_by_hand() -> None:
    assert least_gamma_sq(8.0, clients=5, cohort=3, steps=4) == 16 * 8 / (4 * 5 * 2)
    assert least_gamma_sq(8.0, clients=5, cohort=1, steps=4) == float("inf")


def test_the_variance_is_that_of_single_samples() -> None:
    study = Study(validate(description(**SMALL)), b"8 bytes.")
    task, w = study.task(0, 0, 0), study.initial + 0.1
    x, y = task.x[task.part.train], task.y[task.part.train]
    apart = torch.stack([task.network.gradient(w, x[j : j + 1], y[j : j + 1]).double() for j in range(len(y))])
    exact = float((apart - apart.mean(0)).square().sum(1).mean())
    assert sample_variance(task, w, 10_000) == pytest.approx(exact, rel=1e-5)


def test_the_command_tells_heterogeneity_and_refuses_what_has_no_groups(tmp_path: Path) -> None:
    grouped = description(**SMALL, schedule={"cohort": 2, "sampling": {"kind": "groups", "groups": 3}})
    (tmp_path / "run.toml").write_text(tomli_w.dumps(grouped))
    told = CliRunner().invoke(pflsim, ["heterogeneity", str(tmp_path / "run.toml"), "--steps", "2"]).output
    assert "6 clients in 3 groups, 2 of them a round" in told and "after 2 steps" in told
    assert told.count("gamma^2") == 6 and told.count("alpha") == 2
    (tmp_path / "run.toml").write_text(tomli_w.dumps(description(**SMALL)))
    with pytest.raises(DescriptionError, match="must have groups"):
        CliRunner().invoke(pflsim, ["heterogeneity", str(tmp_path / "run.toml")], catch_exceptions=False)
