"""The pages of a comparison and of a sweep: what a browser draws, and what stands in the tables."""

from pathlib import Path

import pytest

from launch.compare.comparing import compare
from launch.compare.gather import gather
from launch.compare.page import comparison_page
from launch.sweep.page import sweep_page
from tests.browsing import TIMEOUT_S, chromium
from tests.launching import description
from tests.recorded import finished_in
from tests.test_report_page import assert_drawn_alike, figures, titles
from tests.test_sweep import table_plan


@pytest.mark.timeout(TIMEOUT_S)
def test_a_comparison_has_a_page_with_every_seed_and_the_differences(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        finished_in(tmp_path / f"s{seed}", description(run__seed=seed))
        finished_in(tmp_path / f"s{seed}-ditto", description(run__seed=seed, algorithm={"name": "ditto", "lam": 0.5}))
    found = gather([tmp_path])
    comparison = compare(found.runs, None, 0.5, found.left_out)
    (tmp_path / "page.html").write_text(comparison_page(comparison))
    html = (tmp_path / "page.html").read_text()
    assert titles(html) == ["Results", "How to read it"]
    seeds, differences = figures(html)
    assert len(seeds["data"][0]["x"]) == 6
    assert sorted(differences["data"][0]["x"]) == pytest.approx(
        sorted(
            100 * (comparison.lines[1].by_seed[seed].accuracy.weighted - run.accuracy.weighted)
            for seed, run in comparison.lines[0].by_seed.items()
        )
    )
    with chromium() as browser:
        assert_drawn_alike(browser, tmp_path / "page.html", 2)


@pytest.mark.timeout(TIMEOUT_S)
def test_a_sweep_has_a_page_with_the_published_figures_beside_its_own(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(sweep_page(table_plan(tmp_path)))
    html = (tmp_path / "page.html").read_text()
    assert titles(html) == ["few", "many", "How it was made"]
    (few,) = figures(html)  # nothing came of the other column
    assert (few["data"][0]["x"], few["data"][2]["x"]) == ([94.0, 95.0, 97.0, 94.0, 95.0, 97.0], [95.0])
    assert "95.33 ± 1.53" in html and "+0.33" in html and "as planned" in html and "A &amp; B" in html
    with chromium() as browser:
        assert_drawn_alike(browser, tmp_path / "page.html", 1)
