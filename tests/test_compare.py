"""Methods beside each other: who is whose pair, what may be said of a few seeds, and how it looks."""

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner

from launch.cli import guarded, pflsim
from launch.compare import forms
from launch.compare.command import compare_places
from launch.compare.comparing import Comparison, Line, Measured, beside_baseline, compare
from launch.compare.gather import Run, gather, labelled
from pflsim.errors import DescriptionError
from pflsim.record.accuracy import Point, over_clients, point_at_target
from pflsim.record.result import Result
from tests.launching import BASE, description
from tests.recorded import finished_in

DITTO = {"name": "ditto", "lam": 0.5}


def run_in(folder: Path, seed: int, **settings: Any) -> Path:
    return finished_in(folder, description(run__seed=seed, record__plot=False, **settings))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of FedAvg with seeds 1 to 3, and beside them those of Ditto; seed 4 has FedAvg alone."""
    folder = tmp_path_factory.mktemp("results")
    for seed in (1, 2, 3):
        run_in(folder / f"s{seed}", seed)
        run_in(folder / f"s{seed}-ditto", seed, algorithm=DITTO)
    run_in(folder / "s4", 4)
    return folder


def compared(place: Path, *names: str, baseline: str | None = None, target: float | None = None) -> Comparison:
    found = gather([place / name for name in names])
    return compare(found.runs, baseline, target, found.left_out)


def correct_by_hand(folder: Path) -> float:
    summary = json.loads((folder / "summary.json").read_text())
    return 100 * float(summary["accuracy"]["weighted"])


def test_runs_that_differ_in_their_seed_alone_are_one_method_with_those_beside_them(place: Path) -> None:
    found = compared(place, "s1", "s2", "s3", "s4")
    fedavg, ditto = found.lines
    assert (fedavg.label, ditto.label, found.baseline) == ("fedavg", "ditto", "fedavg")
    assert sorted(fedavg.by_seed) == [(seed, seed, seed) for seed in (1, 2, 3, 4)]
    assert sorted(ditto.by_seed) == [(seed, seed, seed) for seed in (1, 2, 3)]
    assert fedavg.is_baseline and fedavg.difference is None


def test_a_difference_is_the_mean_over_common_seeds_of_what_the_records_say(place: Path) -> None:
    _, ditto = compared(place, "s1", "s2", "s3", "s4").lines
    each = [correct_by_hand(place / f"s{seed}-ditto") - correct_by_hand(place / f"s{seed}") for seed in (1, 2, 3)]
    assert ditto.difference is not None and ditto.difference.n == 3
    assert ditto.difference.mean == pytest.approx(sum(each) / 3)
    assert ditto.holm_p == ditto.difference.p_value, "one comparison needs no correction"
    turned = compared(place, "s1", "s2", "s3", baseline="ditto").lines[0]
    assert turned.difference is not None and turned.difference.mean == pytest.approx(-sum(each) / 3)


def test_a_folder_of_runs_is_all_of_them_and_nothing_counts_twice(place: Path) -> None:
    whole = compared(place.parent, place.name)
    assert {line.label: len(line.by_seed) for line in whole.lines} == {"fedavg": 4, "ditto": 3}
    twice = compared(place, "s1", "s1-ditto", "s1")
    assert {line.label: len(line.by_seed) for line in twice.lines} == {"fedavg": 1, "ditto": 1}
    assert twice.remarks == ()


def test_the_same_method_with_other_settings_is_told_apart_by_them(place: Path, tmp_path: Path) -> None:
    run_in(tmp_path / "strong", 1, algorithm=DITTO | {"lam": 2.0})
    found = gather([place / "s1", tmp_path / "strong"])
    labels = [line.label for line in compare(found.runs, None, None).lines]
    assert labels == ["fedavg", "ditto, lam=0.5", "ditto, lam=2.0"]


def test_methods_that_differ_in_much_are_told_apart_by_folders_also_by_those_of_one_name(tmp_path: Path) -> None:
    much = {"training__step_size": 0.2, "training__batch": 5, "training__momentum": 0.5, "data__samples": 300}
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    run_in(tmp_path / "a" / "out", 1)
    run_in(tmp_path / "b" / "out", 1, **much)
    found = gather([tmp_path / "a" / "out", tmp_path / "b" / "out"])
    assert [run.label for run in found.runs] == ["fedavg (out)", "fedavg (b/out)"]


def test_rows_of_two_sweeps_that_have_the_same_name_are_told_apart(place: Path) -> None:
    result = Result.open(place / "s1")
    rows = [Run(result, "FedAvg", "c", sweep="first"), Run(result, "FedAvg", "c", sweep="second")]
    assert [run.label for run in labelled(rows)] == ["FedAvg (first)", "FedAvg (second)"]
    assert [run.label for run in labelled(rows[:1])] == ["FedAvg"]


def test_where_the_partition_is_another_no_difference_is_told_and_why(place: Path, tmp_path: Path) -> None:
    other = {"name": "ditto", "lam": 0.5}
    run_in(tmp_path / "other", 1, algorithm=other, data__partition={"name": "shards", "classes": 2})
    found = gather([place / "s4", place / "s1", tmp_path / "other"])
    comparison = compare(found.runs, None, None)
    last = comparison.lines[-1]
    assert last.difference is None and "the partition is not the baseline's (seed 1)" in last.why_none
    assert any(last.why_none in remark for remark in comparison.remarks)


def test_a_method_that_pools_the_data_has_the_partition_that_the_others_have(place: Path, tmp_path: Path) -> None:
    run_in(tmp_path / "pooled", 1, algorithm={"name": "centralised"})
    found = gather([place / "s1", tmp_path / "pooled"])
    last = compare(found.runs, None, None).lines[-1]
    assert last.label == "centralised" and last.difference is not None


def test_without_common_seeds_there_is_no_difference(place: Path) -> None:
    found = gather([place / "s4", place / "s1-ditto"])
    assert compare(found.runs, None, None).lines[1].why_none == "has no seed that the baseline has"


def test_few_seeds_are_warned_of_and_there_is_no_rank_test(place: Path) -> None:
    comparison = compared(place, "s1", "s2", "s3")
    said = forms.remarks(comparison)
    assert any(line.startswith("warning: 3 common seeds are few") for line in said)
    assert any(line.startswith("no rank test") for line in said)
    assert "p rank" not in forms.accuracy_head(comparison)


def points(*percent: float) -> list[Point]:
    return [Point(2 * n, n / 10, 100 * n, over_clients([(int(one), 100, 0.1)])) for n, one in enumerate(percent, 1)]


def test_a_target_is_reached_where_it_is_held_for_three_evaluations() -> None:
    held = point_at_target(points(90, 80, 91, 92, 90, 70), 0.9)
    assert held is not None and (held.round, held.simulated_s, held.payload_bytes) == (6, 0.3, 300)
    assert point_at_target(points(90, 80, 91, 92), 0.9) is None, "nobody saw it hold"


def test_what_a_target_took_is_a_median_with_how_many_seeds_got_there(place: Path) -> None:
    never = compared(place, "s1", "s2", "s3", target=1.0)
    assert forms.cost_row(never, never.lines[0])[3:] == ["0 of 3 seeds", "–", "–", "–"]
    at_once = compared(place, "s1", "s2", "s3", target=0.01)
    assert forms.cost_row(at_once, at_once.lines[0])[3:5] == ["3 of 3 seeds", "1.00"]


def line(label: str, *percent: float) -> Line:
    """A method with these accuracies with seeds 0, 1, ..., of 10,000 samples each."""
    scores = [over_clients([(round(100 * one), 10_000, 0.1)]) for one in percent]
    return Line("", label, {(n, n, n): Measured(score, "p", 1.0, 10, None) for n, score in enumerate(scores)})


def test_only_a_difference_that_holds_for_all_comparisons_is_bold() -> None:
    lines = [
        line("base", 80, 80, 80),
        line("far", 90, 90.1, 90.2),
        line("near", 81, 81.3, 81.9),
        line("no", 80, 81, 79),
    ]
    comparison = Comparison(tuple(beside_baseline(lines, "base")), "base", None, ())
    _, far, near, no = comparison.lines
    assert far.difference is not None and (far.difference.low, far.difference.high) == pytest.approx(
        (10.1 - 0.248414, 10.1 + 0.248414), abs=1e-6
    )
    assert far.differs and far.holm_p == pytest.approx(3 * far.difference.p_value)
    assert near.difference is not None and near.difference.excludes_zero and near.difference.p_value < 0.05
    assert near.holm_p > 0.05 and not near.differs, "one of three comparisons may look so by chance"
    assert not no.differs
    shown = forms.markdown(comparison)
    assert shown.count("**") == 2 and "**+10.10 [+9.85, +10.35]**" in shown
    assert "\\textbf{+10.10 [+9.85, +10.35]}" in forms.latex(comparison)


def test_every_form_and_the_picture_are_written_and_the_text_fits_80_columns(place: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        pflsim, ["compare", str(place / "s1"), str(place / "s2"), "--target", "0.5", "--out", str(tmp_path / "c")]
    )
    assert done.exit_code == 0 and max(map(len, done.output.splitlines())) <= max(80, len(str(tmp_path)) + 12)
    written = sorted(path.name for path in (tmp_path / "c").iterdir())
    forms_of_it = [f"compare.{form}" for form in ("csv", "html", "md", "png", "svg", "tex")]
    assert written == [*forms_of_it, "seeds.csv"]
    with (tmp_path / "c" / "compare.csv").open(newline="") as file:
        rows: list[Mapping[str, str]] = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["fedavg", "ditto"]
    assert float(rows[0]["accuracy"]) == pytest.approx(sum(correct_by_hand(place / s) for s in ("s1", "s2")) / 2)
    assert math.isnan(float(rows[0]["p_holm"])) and rows[1]["difference_n"] == "2"
    with (tmp_path / "c" / "seeds.csv").open(newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["1", "2", "1", "2"]


@pytest.mark.parametrize(
    ("form", "begin"), [("csv", "column,method,"), ("markdown", "| method |"), ("latex", "% accuracy")]
)
def test_other_formats_are_printed_alone(
    place: Path, capsys: pytest.CaptureFixture[str], form: str, begin: str
) -> None:
    compare_places([place / "s1"], None, None, (), form, None)
    assert capsys.readouterr().out.startswith(begin)


def test_what_cannot_be_compared_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="holds no run"):
        gather([tmp_path])
    with pytest.raises(DescriptionError, match="is none of the methods: fedavg, ditto"):
        compared(place, "s1", baseline="fedprox")
    assert guarded(lambda: compare_places([place / "s1"], None, 90.0, (), "text", None)) == 2


def test_a_run_that_failed_is_left_out_and_said_so(place: Path, tmp_path: Path) -> None:
    bad = run_in(tmp_path / "bad", 9)
    summary = json.loads((bad / "summary.json").read_text()) | {"status": "failed"}
    (bad / "summary.json").write_text(json.dumps(summary))
    found = gather([place / "s1", bad])
    assert compare(found.runs, None, None, found.left_out).remarks == (f"left out: {bad}: failed",)


def test_a_run_that_has_lost_clients_is_compared_with_a_warning(tmp_path: Path) -> None:
    kept = run_in(tmp_path / "lossy", 9)
    summary = json.loads((kept / "summary.json").read_text()) | {"lost": {"c003": "was killed"}}
    (kept / "summary.json").write_text(json.dumps(summary))
    (said,) = compare(gather([kept]).runs, None, None).remarks
    assert said.startswith("warning: ")
    assert said.endswith("has lost c003: its figures are of the clients that were left")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_descriptions_are_run_first_and_so_is_each_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = {key: value for key, value in BASE.items() if key != "topology"} | {"beside": [{"name": "local"}]}
    (tmp_path / "first.toml").write_text(tomli_w.dumps(tables))
    found = gather([tmp_path / "first.toml"], [2])
    lines = compare(found.runs, "local", None).lines
    assert {line.label: list(line.by_seed) for line in lines} == {"local": [(2, 2, 2)], "fedavg": [(2, 2, 2)]}
