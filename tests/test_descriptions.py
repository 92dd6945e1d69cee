"""The run descriptions that come with pflsim, and the README that explains them: what they say is tried here."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from launch.comparison import run_all
from nodes.sequential import run_sequentially
from pflsim import catalogue
from pflsim.data.loading import DataSettings
from pflsim.learning.training import Training
from pflsim.schedules.sync import Sync
from pflsim.spec import Description, Run, Stop, client_names, override_value, read, validate, with_algorithm
from pflsim.study import Study
from pflsim.sweep import read_sweep
from pflsim.sweep_file import Column, Row, SweepTable, Tuning
from pflsim.timing import devices, links

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "launch" / "runs").glob("*.toml"))
SWEEPS = [path for path in FILES if "sweep" in read(path)]
RUNS = [path for path in FILES if path not in SWEEPS]
EXAMPLES = ROOT / "examples"
NEEDS_NO_FILES = ("digits", "synthetic", "quadratic")
HEAD = ("Question:", "Source:", "Data:", "Time:", "Result:")
README = (ROOT / "README.md").read_text(encoding="utf-8")

every_description = pytest.mark.parametrize("path", RUNS, ids=lambda path: str(path.stem))
every_sweep = pytest.mark.parametrize("path", SWEEPS, ids=lambda path: str(path.stem))


def head(path: Path) -> str:
    """The comment at the top of a description, as one text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first_setting = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.lstrip("# ") for line in lines[:first_setting])


def with_data(path: Path) -> dict[str, Any]:
    """The tables of a description; skips the test where the data that they name are not on this machine."""
    tables = read(path)
    if tables["data"]["name"] not in NEEDS_NO_FILES and "PFLSIM_DATA" not in os.environ:
        pytest.skip("needs real data: set PFLSIM_DATA to the folder that has them")
    return tables


def methods(tables: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A description for each method of `tables` alone."""
    alone = {key: value for key, value in tables.items() if key != "beside"}
    for algorithm in [*tables.get("beside", []), tables["algorithm"]]:
        yield alone | {"algorithm": algorithm}


def shortened(tables: dict[str, Any]) -> dict[str, Any]:
    """Two rounds of two local steps with few clients, in two groups at most, and an evaluation at the end."""
    clients = min(tables["run"]["clients"], 12)
    training = {key: value for key, value in tables["training"].items() if key != "local_epochs"}
    tables = tables | {"training": training | {"local_steps": 2}}
    run = {key: value for key, value in tables["run"].items() if key not in ("eval_every_s", "stop")}
    tables = tables | {"run": run | {"clients": clients, "rounds": 2, "eval_every": 2}}
    sampling = tables.get("schedule", {}).get("sampling")
    if isinstance(sampling, dict) and "groups" in sampling:
        tables = override_value(tables, "schedule.sampling.groups", 2)
    return tables


def test_there_is_a_description_for_each_method_of_this_library() -> None:
    described = {table["algorithm"]["name"] for path in RUNS for table in methods(read(path))}
    assert described == set(catalogue.names("algorithms"))


@every_description
def test_the_head_of_a_description_says_what_a_reader_must_know(path: Path) -> None:
    comment = head(path)
    assert [word for word in HEAD if word not in comment] == []
    assert "?" in comment.split("Source:")[0], "the question is asked as one"
    assert re.search(r"\d+ (s|min)\b.* on 2 cores", comment.split("Time:")[1])
    result = comment.split("Result:")[1]
    assert re.search(r"seeds? \d", result) and re.search(r"\d\d\.\d ± \d", result)


@every_sweep
def test_the_head_of_a_sweep_says_what_a_reader_must_know(path: Path) -> None:
    comment = head(path)
    assert [word for word in HEAD if word not in comment] == []
    assert "?" in comment.split("Source:")[0], "the question is asked as one"
    assert re.search(r"\d+ (s|min|h)\b.* on 2 cores", comment.split("Time:")[1])


@every_sweep
def test_every_run_of_a_sweep_is_valid_on_a_machine_without_data(path: Path) -> None:
    sweep = read_sweep(path)
    assert sweep.name == path.stem and len(sweep.seeds) >= 3
    assert len(sweep.cells) == sum(len(row.columns or sweep.columns) for row in sweep.rows)


@every_description
def test_a_description_is_valid_on_a_machine_without_data(path: Path) -> None:
    assert validate(read(path)).run.clients >= 10


@every_description
def test_every_method_of_a_description_can_be_built(path: Path) -> None:
    tables = with_data(path)
    for one in methods(tables):
        plan = Study(validate(one), b"tried").plan()
        assert plan["facts"]["partition"]["report"]
        assert "another client's training samples" not in plan["facts"]["partition"]["report"]


@every_description
@pytest.mark.slow
def test_a_short_form_of_a_description_runs(path: Path) -> None:
    for one in methods(shortened(with_data(path))):
        study = Study(validate(one), b"tried")
        facts = run_sequentially(study).facts
        if study.is_for_peers:  # each has rounds of its own
            done = [(fact[1], fact[2]) for fact in facts if fact[0] == "steps"]
            assert sorted(done) == [(round, peer) for round in (1, 2) for peer in range(len(study.names))]
        else:
            assert [fact[1] for fact in facts if fact[0] == "rounds"] == [1, 2]
        evaluated = [fact for fact in facts if fact[0] == "evaluations"]
        assert {fact[1] for fact in evaluated} == {2}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fedavg_on_fashion_mnist_reaches_the_accuracy_that_its_description_states(tmp_path: Path) -> None:
    path = ROOT / "launch" / "runs" / "fedavg-fashion-mnist.toml"
    stated = float(re.search(r"Reaches: at least (\d+) %", head(path)).group(1))  # type: ignore[union-attr]
    (result,) = run_all(override_value(with_data(path), "record.report", False), tmp_path / "out", quiet=True)
    assert result.accuracy is not None and 100 * result.accuracy >= stated


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_in_the_first_study_fedu_is_best_and_a_straggler_is_waited_for(tmp_path: Path) -> None:
    tables = read(ROOT / "launch" / "runs" / "start-here.toml")
    local, fedavg, fedu = run_all(tables, tmp_path / "out", quiet=True)
    assert fedu.accuracy is not None and local.accuracy is not None and fedavg.accuracy is not None
    assert fedu.accuracy > local.accuracy > fedavg.accuracy
    assert (tmp_path / "out" / "report.html").stat().st_size > 1_000_000
    assert fedu.directory == tmp_path / "out" and local.directory == tmp_path / "out-local"
    description = validate(tables)
    slow = devices.Devices(description.devices, client_names(40), description.run.seed.train)
    for result in (local, fedavg, fedu):
        waited_for = result.summary["waited_for"]
        assert slow.device(waited_for["actor"]).flops_per_second == 2e6
        assert waited_for["others_as_late"] == 3, "four are equally slow"


def test_the_readme_names_every_key_of_a_run_description() -> None:
    tables: list[type[BaseModel]] = [Description, Run, Stop]
    keys = {key for table in tables for key in table.model_fields}
    keys |= {key.name for part in (Training, DataSettings, Sync) for key in fields(part)}
    documented = README[README.index("## Run descriptions") : README.index("## The command line")]
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", documented)] == []


def test_the_readme_names_every_key_of_a_sweep() -> None:
    tables = [SweepTable, Column, Row, Tuning]
    documented = README[README.index("## Many runs") : README.index("## Run descriptions")]
    keys = {key for table in tables for key in table.model_fields}
    assert [key for key in sorted(keys) if f"`{key}`" not in documented] == []


def test_the_readme_names_every_preset_method_and_description() -> None:
    names = [*links.PRESETS, *devices.PRESETS, *(f"launch/runs/{path.name}" for path in FILES)]
    assert [name for name in names if name not in README] == []
    plain = README.lower()
    assert [name for name in catalogue.names("algorithms") if name not in plain] == []


def readme_files(package: Path) -> None:
    """Write the files that the README shows into `package`."""
    for name, text in re.findall(r"```python\n# my_package/(\w+\.py)\n(.*?)```", README, re.DOTALL):
        (package / name).write_text(text, encoding="utf-8")


def test_the_parts_that_the_readme_shows_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_package").mkdir()
    readme_files(tmp_path / "my_package")
    monkeypatch.syspath_prepend(tmp_path)
    tables = shortened(read(ROOT / "launch" / "runs" / "start-here.toml"))
    tables = next(methods(tables | {"beside": []})) | {"model": {"name": str(EXAMPLES / "tiny.py:tiny"), "width": 4}}
    tables |= {"algorithm": {"name": "my_package.fedavgm:FedAvgM", "beta": 0.5}}
    tables |= {"data": {"name": str(EXAMPLES / "moons.py:moons"), "noise": 0.1}}
    finished = run_sequentially(Study(validate(tables), b"tried")).finished()
    assert finished["rounds"] == 2


def test_the_description_in_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    shown = re.search(r"```toml\n(links = .*?)```", README, re.DOTALL)
    assert shown is not None
    (tmp_path / "shown.toml").write_text(shown.group(1), encoding="utf-8")
    tables = shortened(read(tmp_path / "shown.toml"))
    assert [run_sequentially(Study(validate(one), b"tried")).finished()["rounds"] for one in methods(tables)] == [2, 2]


def test_the_sweep_in_the_readme_is_valid_on_the_description_there(tmp_path: Path) -> None:
    description = re.search(r"```toml\n(links = .*?)```", README, re.DOTALL)
    shown = re.search(r"```toml\n(\[sweep\]\n.*?)```", README, re.DOTALL)
    assert description is not None and shown is not None
    (tmp_path / "other.toml").write_text(description.group(1), encoding="utf-8")
    (tmp_path / "shown.toml").write_text(shown.group(1), encoding="utf-8")
    ditto, fine_tuned = read_sweep(tmp_path / "shown.toml").cells
    assert len(ditto.trials) == len(fine_tuned.trials) == 6 and ditto.paper == 95.65


@pytest.mark.parametrize("table", ["devices", "links"])
def test_the_tables_of_devices_and_links_in_the_readme_are_valid(tmp_path: Path, table: str) -> None:
    shown = re.search(rf"```toml\n(\[{table}\]\n.*?)```", README, re.DOTALL)
    assert shown is not None
    (tmp_path / "shown.toml").write_text(shown.group(1), encoding="utf-8")
    given = read(tmp_path / "shown.toml")[table]
    names = ("server", "c000", "c001", "c002", "c003")
    assert devices.Devices(given, names, 1) if table == "devices" else links.Links(given, names)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_passes_names_with_spaces_on_as_they_are() -> None:
    given = ["make", "--no-print-directory", "-n", "sim", "OUT=my folder", "RUN=a run.toml", "N=3", "HOSTS=a lab.toml"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said = subprocess.run(given, cwd=ROOT, env=alone, capture_output=True, text=True, check=True).stdout
    run, path, *overrides = shlex.split(said.splitlines()[-1])[1:]
    assert (run, path, overrides) == (
        "run",
        "a run.toml",
        ["--set", "run.clients=3", "--hosts", "a lab.toml", "--out", "my folder"],
    )


@pytest.mark.parametrize("clients", [3, 40, 300])
def test_the_first_study_takes_any_method_and_any_number_of_clients(clients: int) -> None:
    tables = override_value(read(ROOT / "launch" / "runs" / "start-here.toml"), "run.clients", clients)
    for name in catalogue.names("algorithms"):
        if name == "dfedu":  # the default step, which is stable and may overshoot
            Study(validate(with_algorithm(tables, name)), b"tried")
            continue
        told = Study(validate(with_algorithm(tables, name)), b"tried").warnings
        assert [warning for warning in told if "overshoots" in warning] == [], name
