"""A sweep's file: what it stands for, what is refused before anything runs, how it tunes, and how its table looks."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from launch.sweep.cache import NOTE, Cache, _parts, key_of
from launch.sweep.display import Pace, eta, total_s
from launch.sweep.figures import figures, trials_in_words
from launch.sweep.files import as_toml, latex, markdown, table_rows
from launch.sweep.plan import Plan
from launch.sweep.pool import Job, Pool
from launch.sweep.reading import DIVERGED, FAILED, Outcome
from launch.sweep.show import show_table
from launch.sweep.tuning import Trial, choose, edges
from pflsim.errors import DescriptionError
from pflsim.record.accuracy import over_clients
from pflsim.spec import validate
from pflsim.sweep import in_words, made_sweep, read_sweep
from tests.launching import BASE, description
from tests.recorded import finished_in

PLAIN = {key: value for key, value in BASE.items() if key != "topology"}


def tables(**more: Any) -> dict[str, Any]:
    """A sweep of FedAvg and Local with two columns and three seeds."""
    rows = [{"name": "FedAvg", "algorithm": {"name": "fedavg"}}, {"name": "Local", "algorithm": {"name": "local"}}]
    columns = [{"name": "few"}, {"name": "many", "set": {"data.samples": 400}}]
    return {"sweep": {"seeds": [1, 2, 3]}, "base": PLAIN, "column": columns, "row": rows} | more


def row(name: str = "FedAvg", **more: Any) -> dict[str, Any]:
    return {"name": name, "algorithm": {"name": "fedavg"}} | more


STEPS = {"training.step_size": [0.01, 0.1, 1.0]}


def reached(percent: float, validation: bool = False) -> Outcome:
    """The outcome of a run in which so many of 100,000 samples were right."""
    return Outcome("done", model="global", round=3, accuracy=over_clients([(round(1000 * percent), 100_000, 0.5)]))


def plan_of(given: Mapping[str, Any], folder: Path) -> Plan:
    return Plan(made_sweep(given), Cache(folder))


def test_a_cell_is_the_base_with_what_its_column_and_its_row_say() -> None:
    given = tables(
        row=[row(set={"training.step_size": 0.3}, per_column={"many": {"training.step_size": 0.5, "run.rounds": 7}})]
    )
    few, many = (cell.described(5) for cell in made_sweep(given).cells)
    assert (few.training.step_size, few.run.rounds, few.data.settings["samples"]) == (0.3, 3, 200)
    assert (many.training.step_size, many.run.rounds, many.data.settings["samples"]) == (0.5, 7, 400)
    assert few.run.seed.data == few.run.seed.train == 5
    assert not few.record.spans and not few.record.plot


def test_a_record_is_kept_whole_where_the_base_asks_for_it() -> None:
    (cell, *_) = made_sweep(tables(base=PLAIN | {"record": {"spans": True}})).cells
    assert cell.described(1).record.spans and not cell.described(1).record.plot


def test_a_grid_makes_a_row_of_each_combination_named_by_its_values() -> None:
    given = {"base": PLAIN, "grid": {"training.step_size": [0.1, 0.2], "run.rounds": [2, 4]}}
    sweep = made_sweep(given)
    names = [one.name for one in sweep.rows]
    assert names == ["step_size=0.1, rounds=2", "step_size=0.1, rounds=4", "step_size=0.2, rounds=2",
                     "step_size=0.2, rounds=4"]  # fmt: skip
    assert [cell.described(1).run.rounds for cell in sweep.cells] == [2, 4, 2, 4]
    assert sweep.columns == ("synthetic mlr",)


def test_rows_and_a_grid_multiply_and_papers_have_a_figure_for_each_combination() -> None:
    given = tables(row=[row(paper={"few": [91.0, 92.0]})], grid={"training.step_size": [0.1, 0.2]})
    sweep = made_sweep(given)
    assert [one.name for one in sweep.rows] == ["FedAvg, step_size=0.1", "FedAvg, step_size=0.2"]
    assert [cell.paper for cell in sweep.cells] == [91.0, None, 92.0, None]
    with pytest.raises(DescriptionError, match="must be a list of 2 figures"):
        made_sweep(tables(row=[row(paper={"few": 91.0})], grid={"training.step_size": [0.1, 0.2]}))


def test_keys_with_the_same_last_part_are_told_apart() -> None:
    assert in_words({"algorithm.lam": 11, "data.partition": {"name": "shards", "classes": 3}}) == (
        "lam=11, partition=shards(classes=3)"
    )
    assert in_words({"data.name": "mnist", "model.name": "mlr"}) == "data.name=mnist, model.name=mlr"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"row": [row(sett={})]}, r'row "FedAvg".sett = {}: unknown key.*did you mean \'set\''),
        ({"seeds": [1]}, "seeds = .*: unknown key; known are base, column, grid, row, sweep, tuning"),
        ({"sweep": {"seeds": []}}, "sweep.seeds"),
        ({"sweep": {"seeds": [1, 1]}}, "sweep.seeds = 1: is there twice"),
        ({"sweep": {"report": "best"}}, "sweep.report = 'best'"),
        ({"row": [row(), row()]}, "row = 'FedAvg': is there twice"),
        ({"column": [{"name": "few"}, {"name": "few"}]}, "column = 'few': is there twice"),
        ({"row": [row(columns=["fewer"])]}, r'row "FedAvg".columns = \'fewer\': is none of few, many; did you mean'),
        ({"row": [row(paper={"fw": 9.0})]}, r'row "FedAvg".paper = \'fw\': is none of'),
        ({"row": [row(reading_of="Local"), row("Local")]}, r'row "FedAvg".reading_of = \'Local\': is none of'),
        ({"row": [row(set={"training.step_sise": 0.1})]}, r'row "FedAvg", column "few": training.step_sise = 0.1: unk'),
        ({"row": [row(set={"algorithm.lam": 0.1})]}, r'row "FedAvg", column "few": algorithm.lam = 0.1: unknown key'),
        ({"row": [row(set={"training.step_size": -1})]}, r'row "FedAvg", column "few": training.step_size = -1'),
        ({"row": [row(tune={"training.step_size": []})]}, r'row "FedAvg".tune.training.step_size'),
        ({"row": [row(tune={"run.rounds": [1, 2]})]}, "cannot be tuned"),
        ({"row": [row(tune={"data.validation": [0.1, 0.2]})]}, "cannot be tuned"),
        ({"row": [row(tune={"algorithm.mu": [1, 2]})]}, r'column "few", tuned to mu=1: algorithm.mu = 1: unknown key'),
        ({"sweep": {"report": "validation"}}, "data.validation = 0.*must be above 0, as sweep.report"),
        (
            {"column": [{"name": "c", "set": {"algorithm.lam": 1.0}}]},
            r'column "c".set.algorithm.lam = 1.0: would be lost, as row "FedAvg" has an algorithm of its own',
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_the_row_and_the_column(more: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        made_sweep(tables(**more))


def test_seeds_that_are_tuned_on_must_not_be_reported() -> None:
    with pytest.raises(DescriptionError, match=r"tuning.seeds = \[2\]: is in sweep.seeds too"):
        made_sweep(tables(row=[row(tune=STEPS)], tuning={"seeds": [2, 101]}))
    with pytest.raises(DescriptionError, match=r"\[101\]"):
        made_sweep(tables(row=[row(tune=STEPS)], sweep={"seeds": [101]}))
    assert made_sweep(tables(sweep={"seeds": [101]})), "where nothing is tuned, any seed will do"


def test_rows_that_are_tuned_get_the_same_number_of_trials() -> None:
    other = row("other", tune=STEPS | {"training.batch": [5, 10]})
    with pytest.raises(DescriptionError, match="FedAvg: 3, other: 6"):
        made_sweep(tables(row=[row(tune=STEPS), other]))
    assert made_sweep(tables(row=[row(tune=STEPS), row("not tuned")]))


def test_a_description_of_one_run_is_not_taken_for_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(tomli_w.dumps(PLAIN))
    with pytest.raises(DescriptionError, match="is the description of one run"):
        read_sweep(tmp_path / "run.toml")


def test_a_base_is_read_from_the_folder_of_the_sweep_and_what_is_written_stands_by_itself(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(tomli_w.dumps(PLAIN | {"beside": [{"name": "local"}]}))
    given = {"sweep": {"base": "one.toml", "seeds": [4]}, "base": {"run": {"rounds": 9}}, "row": [row(tune=STEPS)]}
    (tmp_path / "many.toml").write_text(tomli_w.dumps(given))
    first = read_sweep(tmp_path / "many.toml")
    assert first.name == "many" and first.cells[0].described(1).run.rounds == 9
    (tmp_path / "again.toml").write_text(as_toml(first))
    again = read_sweep(tmp_path / "again.toml")
    assert again.cells == first.cells and again.name == "many" and again.seeds == (4,)


def test_a_base_replaces_a_part_that_it_names_differently(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(tomli_w.dumps(PLAIN | {"algorithm": {"name": "ditto", "lam": 0.5}}))
    given = {"sweep": {"base": "one.toml"}, "base": {"algorithm": {"name": "fedavg"}}}
    (tmp_path / "many.toml").write_text(tomli_w.dumps(given))
    assert read_sweep(tmp_path / "many.toml").cells[0].tables["algorithm"] == {"name": "fedavg"}


def test_runs_with_the_same_results_have_the_same_key() -> None:
    key = key_of(validate(description()))
    assert key == key_of(validate(description(run__name="other", run__clients_per_process=2, run__transport="tcp")))
    assert key == key_of(validate(description(run__eval_every=1))), "a default that is written down"
    others = [{"run__seed": 2}, {"training__step_size": 0.2}, {"record__spans": False}, {"run__eval_every": 2}]
    assert len({key, *(key_of(validate(description(**other))) for other in others)}) == 5


def test_a_changed_file_makes_another_run(tmp_path: Path) -> None:
    graph = tmp_path / "graph.csv"
    graph.write_text("k,l\n0,1\n1,2\n2,3\n")
    given = description(topology={"name": "file", "file": str(graph)})
    before = key_of(validate(given))
    graph.write_text("k,l\n0,1\n1,2\n0,3\n")
    assert key_of(validate(given)) != before


def test_the_code_of_codecs_is_part_of_a_key() -> None:
    parts = {part.__name__ for part in _parts(validate(description(codec={"up": "int4", "down": {"name": "fp16"}})))}
    assert {"FourBits", "Half"} <= parts


@pytest.mark.parametrize("damaged", [NOTE, "summary.json", "record.db", "run.toml"])
def test_a_damaged_run_is_none_and_gives_its_place_to_a_new_one(damaged: str, tmp_path: Path) -> None:
    given = validate(description())
    place = tmp_path / key_of(given)
    finished_in(place, description())
    (place / NOTE).write_text('{"code": "another"}')
    whole = (place / damaged).read_bytes()
    (place / damaged).write_bytes(whole[: len(whole) // 2])
    cache = Cache(tmp_path)
    key = cache.key_of(given)
    assert not cache.holds(key)
    cache.keep(key, finished_in(cache.unfinished(key, 1), description()))
    assert cache.holds(key)
    (place / damaged).unlink()
    later = Cache(tmp_path)
    assert later.key_of(given) == key and not later.holds(key)


def test_a_new_option_voids_no_run_and_a_changed_default_does(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = cache.key_of(validate(description()))
    place = tmp_path / key
    finished_in(place, description(run__name="older"))
    assert not cache.holds(key), "it has no note of being done"
    (place / NOTE).write_text('{"code": "another"}')
    assert cache.holds(key) and cache.is_of_other_code(key)
    told = tomllib.loads((place / "run.toml").read_text())
    del told["training"]["momentum"], told["availability"]  # as if there had been no such options then
    (place / "run.toml").write_text(tomli_w.dumps(told))
    later = Cache(tmp_path)
    assert later.key_of(validate(description())) == key and later.holds(key)
    told["algorithm"]["finetune"] = False  # as if that had been its default
    (place / "run.toml").write_text(tomli_w.dumps(told))
    latest = Cache(tmp_path)
    assert latest.key_of(validate(description())) == key and not latest.holds(key)


def test_wall_time_is_kept_apart_by_its_placement() -> None:
    wall = description(time={"mode": "wall"})
    packed = wall | {"run": wall["run"] | {"clients_per_process": 2}}
    assert key_of(validate(wall)) != key_of(validate(packed))


def test_a_trial_counts_only_if_it_ended_well_with_every_seed() -> None:
    good, better = reached(80.0), reached(90.0)
    diverged = replace(better, status=DIVERGED)
    grid = [
        Trial({"lr": 0.1}, {(101, 0): good, (102, 0): good}, "weighted"),
        Trial({"lr": 0.2}, {(101, 0): better, (102, 0): diverged}, "weighted"),
        Trial({"lr": 0.4}, {(101, 0): Outcome(FAILED), (102, 0): better}, "weighted"),
    ]
    choice = choose(grid)
    assert choice is not None and choice.trial.settings == {"lr": 0.1} and choice.trial.score == 0.8
    assert choice.edges == ("lr",)
    assert choose(grid[1:]) is None


def test_of_equals_the_first_is_chosen_and_the_others_are_counted() -> None:
    same = [Trial({"lr": lr}, {(101, 0): reached(80.0)}, "weighted") for lr in (0.1, 0.2, 0.4)]
    choice = choose(same)
    assert choice is not None and choice.trial.settings == {"lr": 0.1} and choice.ties == 2


def test_an_edge_is_the_least_or_largest_number_of_its_key_and_words_have_none() -> None:
    grid = [{"lr": lr, "init": init, "align": True} for lr in (0.1, 0.2, 0.4) for init in ("random", "k-means")]
    assert edges({"lr": 0.2, "init": "random", "align": True}, grid) == ()
    assert edges({"lr": 0.4, "init": "random", "align": True}, grid) == ("lr",)


def test_the_reported_runs_are_those_of_the_chosen_trial_with_other_seeds_and_all_training_data(tmp_path: Path) -> None:
    plan = plan_of(tables(row=[row(tune=STEPS)], column=[{"name": "c"}], tuning={"validation": 0.3}), tmp_path)
    (cell,) = plan.sweep.cells
    trials = plan.missing(cell)
    assert [(run.seed, run.settings["training.step_size"]) for run in trials] == [(101, 0.01), (101, 0.1), (101, 1.0)]
    assert {run.description.data.settings["validation"] for run in trials} == {0.3}
    assert plan.reported(cell) is None and plan.remaining([cell]) == 6
    for run, percent in zip(trials, (50.0, 70.0, 60.0), strict=True):
        plan.failed[run.key] = reached(percent)
    found = plan.missing(cell)
    assert [run.seed for run in found] == [1, 2, 3]
    assert {run.description.training.step_size for run in found} == {0.1}
    assert all(not run.description.data.settings.get("validation") for run in found)
    assert {run.description.run.clients_per_process for run in found} == {4}, "packed, as nobody says otherwise"
    assert trials_in_words(plan) == ["FedAvg, c: step_size=0.01 50.00; step_size=0.1 70.00*; step_size=1.0 60.00"]


def test_with_folds_a_trial_is_run_with_each_part_set_aside_once(tmp_path: Path) -> None:
    tuned = tables(row=[row(tune=STEPS)], column=[{"name": "c"}], tuning={"folds": 3})
    plan = plan_of(tuned, tmp_path)
    (cell,) = plan.sweep.cells
    trials = plan.missing(cell)
    splits = [(run.description.data.settings["validation"], run.fold) for run in trials[:3]]
    assert splits == [(1 / 3, 0), (1 / 3, 1), (1 / 3, 2)] and len(trials) == 9
    assert trials[1].label == "FedAvg, c, trial of step_size=0.01, seed 101, fold 2"
    for run, percent in zip(trials, (90, 10, 50, 60, 60, 60, 10, 90, 50), strict=True):
        plan.failed[run.key] = reached(percent)
    choice = plan.choice(cell)
    assert choice is not None and choice.trial.settings == {"training.step_size": 0.1} and choice.trial.score == 0.6
    assert made_sweep(tomllib.loads(as_toml(plan.sweep))).cells == plan.sweep.cells
    with pytest.raises(DescriptionError, match="stands instead of"):
        made_sweep(tables(tuning={"folds": 3, "validation": 0.1}))


def test_rows_that_read_other_models_of_one_run_share_it(tmp_path: Path) -> None:
    plan = plan_of(tables(row=[row(), row("fine-tuned", model="finetuned")], column=[{"name": "c"}]), tmp_path)
    one, other = plan.sweep.cells
    assert [run.key for run in plan.missing(one)] == [run.key for run in plan.missing(other)]
    assert plan.remaining(plan.sweep.cells) == 3


def table_plan(folder: Path) -> Plan:
    """A table with a whole cell, one with a seed that diverged, one that failed, and one that was not run."""
    papers = {"few": 95.0}
    given = tables(row=[row(paper=papers), row("A & B", note="not in the paper", reading_of="FedAvg")])
    plan = plan_of(given, folder)
    whole, failed, diverged, _ = plan.sweep.cells
    for seed, percent in zip((1, 2, 3), (94.0, 95.0, 97.0), strict=True):
        plan.failed[plan.reported(whole)[seed - 1].key] = reached(percent)  # type: ignore[index]
    for run in plan.reported(failed) or ():
        plan.failed[run.key] = Outcome(FAILED, "as planned")
    assert plan.sweep.cells[2].tables == whole.tables, "the other reading has the same runs here"
    assert plan.reported(diverged) is not None
    return plan


def test_a_figure_is_mean_and_deviation_over_seeds_beside_the_papers(tmp_path: Path) -> None:
    plan = table_plan(tmp_path)
    found = figures(plan)["FedAvg", "few"]
    assert str(found) == "95.33 ± 1.53" and found.difference == pytest.approx(1 / 3)
    assert str(figures(plan)["FedAvg", "many"]) == "failed"
    runs = plan.reported(plan.sweep.cells[0])
    assert runs is not None
    plan.failed[runs[2].key] = replace(reached(97.0), status=DIVERGED)
    found = figures(plan)["FedAvg", "few"]
    assert (str(found), found.status) == ("94.50 ± 0.71 (2/3)", DIVERGED), "who diverged counts as missing"


def test_the_table_in_markdown_and_latex(tmp_path: Path) -> None:
    plan = table_plan(tmp_path)
    shown = markdown(plan).splitlines()
    assert shown[2] == "| method | few | paper | diff. | many | note |"
    assert shown[4] == "| FedAvg | 95.33 ± 1.53 | 95.00 | +0.33 | failed |  |"
    assert shown[5] == "| ↳ A & B | 95.33 ± 1.53 |  |  | failed | not in the paper |"
    assert "mean ± standard deviation (n - 1) over seeds 1, 2, 3" in markdown(plan)
    assert "- failed: FedAvg, many, seed 2: as planned" in shown
    assert "$\\hookrightarrow$ A \\& B & 95.33 $\\pm$ 1.53" in latex(plan)
    rows = table_rows(plan)
    assert [one["status"] for one in rows] == ["done", "failed", "done", "failed"]
    assert rows[0]["paper"] == 95.0 and rows[1]["mean"] is None


def test_how_long_it_will_take_goes_by_runs_of_the_same_cell_then_column_then_all() -> None:
    pace = Pace()
    pace.learn("FedAvg", "few", 10.0)
    pace.learn("FedAvg", "many", 40.0)
    assert pace.expected_s("FedAvg", "few") == 10.0
    assert pace.expected_s("Local", "many") == 40.0
    assert pace.expected_s("Local", "other") == 25.0
    assert total_s([10.0, 10.0, 50.0], 2) == 50.0 and total_s([10.0] * 6, 2) == 30.0
    assert eta(3661.0) == ", ETA 1:01:01" and eta(float("nan")) == ""


def test_a_table_that_is_wider_than_the_terminal_is_shown_column_by_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [{"name": f"setting {number}"} for number in range(6)]
    papers = {"paper": {column["name"]: 90.0 for column in columns}}
    plan = plan_of(tables(column=columns, row=[row("A method's name", **papers)]), tmp_path)
    for width, times in ((80, 6), (400, 1)):
        monkeypatch.setenv("COLUMNS", str(width))
        show_table(plan)
        printed = capsys.readouterr().out.splitlines()
        assert sum(line.startswith("A method's name") for line in printed) == times
        assert max(map(len, printed)) <= width


def test_runs_start_beside_each_other_as_long_as_there_are_cores_and_memory(tmp_path: Path) -> None:
    plan = plan_of(tables(column=[{"name": "c"}]), tmp_path)
    (run, *_) = plan.missing(plan.sweep.cells[0])
    small, large = Job(run, 100), Job(run, 700)
    pool = Pool(Cache(tmp_path), most=3, memory_bytes=1000)
    assert pool.has_room(Job(run, 5000)), "one that needs more than there is runs alone"
    pool._running = {object(): (large, 0.0)}  # type: ignore[dict-item]
    assert pool.has_room(small) and not pool.has_room(large)
    pool._running = {object(): (small, 0.0) for _ in range(3)}  # type: ignore[misc]
    assert not pool.has_room(small)
    wall = validate(description(time={"mode": "wall"}))
    pool._running = {object(): (small, 0.0)}  # type: ignore[dict-item]
    assert not pool.has_room(Job(replace(run, description=wall), 1)), "what is measured must not be disturbed"
