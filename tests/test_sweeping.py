"""Sweeps with real processes: side by side, found again, interrupted, killed, and with runs that go wrong."""

import csv
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner

from launch.cli import guarded, pflsim
from launch.interrupts import interrupted_once
from launch.sweep import files, pool
from launch.sweep.command import Options, check_sweep, sweep
from pflsim.errors import DescriptionError
from pflsim.record.result import Result
from tests.launching import ACCIDENT, BASE, Launched, launcher, run_here

PLAIN = {key: value for key, value in BASE.items() if key != "topology"}
FEDAVG = {"name": "FedAvg", "algorithm": {"name": "fedavg"}}
LOCAL = {"name": "Local", "algorithm": {"name": "local"}}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    yield from launcher(tmp_path)


def described(**more: Any) -> dict[str, Any]:
    return {"sweep": {"seeds": [1, 2]}, "base": PLAIN, "row": [FEDAVG, LOCAL]} | more


def swept(place: Path, out: Path, tables: dict[str, Any], **options: Any) -> bool:
    (place / "swept.toml").write_text(tomli_w.dumps(tables))
    return sweep(place / "swept.toml", Options(out=out, quiet=True, **options))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_gives_what_its_runs_give_alone_and_runs_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert swept(tmp_path, out, described())
    runs = rows_of(out / "runs.csv")
    assert [(run["row"], run["seed"]) for run in runs] == [(row, seed) for row in ("FedAvg", "Local") for seed in "12"]
    alone = run_here(PLAIN | {"run": PLAIN["run"] | {"seed": 2, "clients_per_process": 1}}, tmp_path / "alone")
    assert runs[1]["digest"] == alone.summary["digest"], "wherever its clients are"
    assert float(runs[1]["weighted"]) == alone.accuracy
    assert runs[1]["partition"] == runs[3]["partition"] != runs[0]["partition"]
    assert Result.open(out / runs[0]["folder"]).summary["status"] == "done"
    monkeypatch.setattr(pool.Pool, "start", lambda *_: pytest.fail("all of it is there"))
    other = tmp_path / "other"
    assert swept(tmp_path, other, described(row=[LOCAL, FEDAVG]), cache=out / "runs")
    again = rows_of(other / "runs.csv")
    assert [row["digest"] for row in again[2:]] == [row["digest"] for row in runs[:2]]
    assert again[2]["folder"] == str((out / runs[0]["folder"]).resolve()), "outside, so the whole path"
    assert "Local" in capsys.readouterr().out


def test_trials_choose_on_validation_and_only_then_the_reported_runs_are_made(tmp_path: Path) -> None:
    tuned = FEDAVG | {"tune": {"training.step_size": [1e-6, 0.1]}}
    tables = described(sweep={"seeds": [1]}, row=[tuned], tuning={"seeds": [7], "validation": 0.3})
    assert swept(tmp_path, tmp_path / "out", tables)
    trials = rows_of(tmp_path / "out" / "trials.csv")
    assert [(trial["chosen"], trial["seed"], trial["status"]) for trial in trials] == [
        ("False", "7", "done"),
        ("True", "7", "done"),
    ]
    assert float(trials[1]["validation"]) > float(trials[0]["validation"])
    for trial in trials:
        curve = Result.open(tmp_path / "out" / trial["folder"]).curve(split="validation")
        assert float(trial["validation"]) == curve[-1].accuracy.weighted
    (run,) = rows_of(tmp_path / "out" / "runs.csv")
    assert run["settings"] == '{"training.step_size": 0.1}'
    assert Result.open(tmp_path / "out" / run["folder"]).curve(split="validation") == []
    assert "best on the edge of the grid: training.step_size" in (tmp_path / "out" / "table.md").read_text()


def test_a_run_that_fails_or_diverges_is_a_marked_cell_and_the_others_go_on(tmp_path: Path) -> None:
    rows = [
        {"name": "fails", "algorithm": {"name": ACCIDENT, "how": "server raises"}},
        {"name": "diverges", "algorithm": {"name": ACCIDENT, "how": "uploads nan"}},
        FEDAVG,
    ]
    assert not swept(tmp_path, tmp_path / "out", described(sweep={"seeds": [1]}, row=rows))
    table = {row["row"]: row for row in rows_of(tmp_path / "out" / "table.csv")}
    assert [table[name]["status"] for name in ("fails", "diverges", "FedAvg")] == ["failed", "diverged", "done"]
    assert table["diverges"]["mean"] == "" and table["FedAvg"]["mean"]
    shown = (tmp_path / "out" / "table.md").read_text()
    assert "not finite" in shown


def test_ctrl_c_ends_a_sweep_within_seconds_and_the_same_command_goes_on(
    tmp_path: Path, launch: Callable[..., Launched]
) -> None:
    tables = described(sweep={"seeds": [1, 2, 3, 4]}, row=[FEDAVG])
    running = launch(tables, "--jobs", "2", command="sweep")
    running.wait_for(lambda one: "[1/4]" in one.stderr, 60)
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.finish(15) == 130
    assert running.nothing_left()
    assert "the same command goes on" in running.stderr
    kept = {path.name for path in (running.out / "runs").iterdir()}
    assert 1 <= len(kept) < 4 and all("." not in name for name in kept), "no half of a run is left"
    assert "0.00" not in (running.out / "table.md").read_text()
    assert swept(tmp_path, running.out, tables)
    assert len(rows_of(running.out / "runs.csv")) == 4
    assert kept < {path.name for path in (running.out / "runs").iterdir()}


def test_ctrl_c_while_the_table_is_written_comes_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that is imported for it just then would stay half imported, and fail when it is needed once more."""
    whole, write, stays_broken = [], files._write_parquet, []

    def interrupted(path: Path, rows: files.Rows) -> None:
        assert not stays_broken
        stays_broken.append(path)
        signal.raise_signal(signal.SIGINT)
        stays_broken.clear()
        whole.append(rows)
        write(path, rows)

    monkeypatch.setattr(files, "_write_parquet", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised, interrupted_once():
        swept(tmp_path, tmp_path / "out", described(), jobs=1)
    assert raised.value.__notes__ == ["3 runs are left; the same command goes on where this one was"]
    assert len(whole) == 2, "after the run, and once more at the end"


@pytest.mark.skipif(not os.path.exists("/proc"), reason="needs Linux's parent-death signal")  # noqa: PTH110
def test_when_a_sweep_is_killed_its_runs_die_and_the_next_one_tidies_up(
    tmp_path: Path, launch: Callable[..., Launched]
) -> None:
    tables = described(row=[{"name": "slow", "algorithm": {"name": ACCIDENT, "pause_s": 10.0}}])
    running = launch(tables, "--jobs", "2", command="sweep")
    running.wait_for(lambda one: len(list((one.out / "runs").glob("*/record.db"))) == 2, 60)
    running.process.kill()
    assert running.finish(5) == -signal.SIGKILL
    assert running.nothing_left(10.0)
    left = list((running.out / "runs").glob("*.*"))
    assert left
    assert swept(tmp_path, running.out, described(sweep={"seeds": [1]}, row=[LOCAL]))
    assert not list((running.out / "runs").glob("*.*"))


def test_a_wrong_sweep_ends_with_code_2_before_anything_starts(tmp_path: Path) -> None:
    tables = described(row=[FEDAVG, LOCAL | {"set": {"run.clients": 10_000}}])
    assert guarded(lambda: swept(tmp_path, tmp_path / "out", tables)) == 2
    assert not (tmp_path / "out").exists()
    done = CliRunner().invoke(pflsim, ["run", str(tmp_path / "swept.toml")])
    assert "is a sweep" in str(done.exception)


def test_check_refuses_what_the_data_refuse(tmp_path: Path) -> None:
    bad = described(column=[{"name": "bad", "set": {"data.samples": 3}}])
    path = tmp_path / "sweep.toml"
    path.write_text(tomli_w.dumps(bad))
    with pytest.raises(DescriptionError, match="bad"):
        check_sweep(path, Options(out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
