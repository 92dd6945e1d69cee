"""A researcher's own parts: the examples run, a run keeps what it used, and errors say what is missing and where."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch

from launch.show import show_rooms
from nodes.sequential import FactList, run_sequentially
from pflsim import outside
from pflsim.errors import DescriptionError
from pflsim.spec import override_value, read, validate, with_algorithm
from pflsim.study import Study
from tests.launching import ROOT, description, run_here

EXAMPLES = ROOT / "examples"
DIGITS = description(
    data={"name": "digits", "pool_limit": 200},
    run={"rounds": 2, "clients": 6, "seed": 1},
    topology={"name": "full"},
)
NAMED: dict[str, dict[str, Any]] = {
    "fedavgm.py:FedAvgM": {"algorithm.name": "{}"},
    "tiny.py:tiny": {"model.name": "{}", "model.width": 5},
    "moons.py:moons": {"data.name": "{}", "data.noise": 0.1, "data.pool_limit": 150},
    "few_have_much.py:few_have_much": {"data.partition": {"name": "{}", "exponent": 0.5}},
    "delay_adaptive.py:DelayAdaptive": {"schedule": {"kind": "{}", "concurrency": 4}},
    "round_robin.py:RoundRobin": {"schedule": {"kind": "sync", "cohort": 2, "sampling": {"kind": "{}", "first": 3}}},
    "caves.py:caves": {"algorithm.name": "dpsgd", "topology": {"name": "{}", "size": 3}},
    "ternary.py:Ternary": {"codec": {"up": {"name": "{}", "delta": True}}},
    "phone_years.py:phone_years": {
        "devices": {"kind": "{}", "newest": 1e6, "server_flops_per_second": "workstation"},
    },
}


def with_own(name: str, base: dict[str, Any] = DIGITS) -> dict[str, Any]:
    """The small run on digits, in which an example takes its part's place."""
    tables = base
    for key, value in NAMED[name].items():
        tables = override_value(tables, key, filled(value, str(EXAMPLES / name)))
    return tables


def filled(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: filled(inner, name) for key, inner in value.items()}
    return name if value == "{}" else value


def ran(tables: dict[str, Any]) -> FactList:
    return run_sequentially(Study(validate(tables), b"tried"))


def test_every_file_of_the_examples_is_tried_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {name.partition(":")[0] for name in NAMED}


@pytest.mark.parametrize("name", NAMED)
def test_an_example_runs_two_rounds(name: str) -> None:
    facts = ran(with_own(name)).facts
    done = [fact[1] for fact in facts if fact[0] == ("steps" if "caves" in name else "rounds")]
    assert done.count(2) == (6 if "caves" in name else 1)
    assert {fact[1] for fact in facts if fact[0] == "evaluations"} == {1, 2}


def test_a_schedule_of_ones_own_decides_what_old_answers_count() -> None:
    """It is FedAsync but for the weight: with a constant one the same bits come out until an answer is older than 4."""
    mine = with_own("delay_adaptive.py:DelayAdaptive")
    always = override_value(override_value(mine, "schedule.kind", "fedasync"), "schedule.staleness", "constant")
    ages = [fact[4] for fact in ran(mine).facts if fact[0] == "measures" and fact[3] == "age"]
    assert max(ages) == 6 and ran(mine).finished()["digest"] != ran(always).finished()["digest"]
    first = [override_value(tables, "run.stop", {"bytes": 20_000}) for tables in (mine, always)]
    young = [fact[4] for fact in ran(first[0]).facts if fact[0] == "measures" and fact[3] == "age"]
    assert max(young) in (1, 2, 3, 4) and ran(first[0]).finished()["digest"] == ran(first[1]).finished()["digest"]


def test_clients_take_turns_and_caves_are_linked_in_a_ring() -> None:
    study = Study(validate(with_own("round_robin.py:RoundRobin")), b"tried")
    assert [study.round(number).cohort for number in (0, 1, 2)] == [(3, 4), (0, 5), (1, 2)]
    study = Study(validate(with_own("caves.py:caves")), b"tried")
    assert [study.linked(peer) for peer in range(6)] == [(1, 2, 5), (0, 2), (0, 1, 3), (2, 4, 5), (3, 5), (0, 3, 4)]


def test_a_codec_of_ones_own_sends_three_values_that_are_right_in_the_mean() -> None:
    codec = outside.load(f"{EXAMPLES}/ternary.py:Ternary", "codec.up")()
    v, rng = torch.tensor([0.5, -1.0, 0.0, 0.25, -2.0]), np.random.default_rng(1)
    frames = [codec.encode(v, rng) for _ in range(4000)]
    seen = torch.stack([codec.decode(frame, 5) for frame in frames])
    assert {len(frame) for frame in frames} == {codec.frame_bytes(5)} == {6}
    assert set(seen.unique().tolist()) == {-2.0, 0.0, 2.0}
    assert seen.mean(0).numpy() == pytest.approx(v.numpy(), abs=0.06)
    assert float(seen.var(0).sum()) == pytest.approx(2 * 3.75 - 5.3125, rel=0.05)
    facts = ran(with_own("ternary.py:Ternary")).facts
    told = [fact for fact in facts if fact[0] == "uncoded" and fact[1] != "server"]
    assert len(told) == 12 and {fact[-2] for fact in told} == {2600}


def test_devices_of_ones_own_may_be_a_plain_list(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def falling(of, *, top: float):\n    return [top - k for k, _ in enumerate(of.names)]\n"
    )
    table = {"kind": f"{tmp_path}/mine.py:falling", "top": 9.0, "server_flops_per_second": 1e9}
    study = Study(validate(override_value(DIGITS, "devices", table)), b"tried")
    assert [study.devices.device(name).flops_per_second for name in study.names] == [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]
    assert [study.devices.speed_class(name) for name in study.names[::2]] == ["fast", "middle", "slow"]


def test_paths_are_relative_to_the_descriptions_folder_else_to_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, names in ((here, ("a.py", "b.py")), (there, ("a.py",))):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    (there / "run.toml").write_text(
        'algorithm = { name = "a.py:X" }\nbeside = [{ name = "b.py:X" }, { name = "c.py:X" }]'
    )
    monkeypatch.chdir(here)
    tables = read(there / "run.toml")
    found = [tables["algorithm"]["name"], *(table["name"] for table in tables["beside"])]
    assert found == [f"{there}/a.py:X", f"{here}/b.py:X", f"{there}/c.py:X"]
    assert outside.placed("no/d.py:X", here) == f"{here}/no/d.py:X"
    (tmp_path / "no").mkdir()
    monkeypatch.chdir(tmp_path)
    assert outside.placed("no/d.py:X", here) == f"{tmp_path}/no/d.py:X"
    monkeypatch.chdir(here)
    assert (
        with_algorithm(tables | {"algorithm": {"name": f"{here}/a.py:X", "s": 1}}, f"{here}/a.py:X")["algorithm"]["s"]
        == 1
    )


def test_a_run_keeps_own_code_and_its_run_toml_gives_the_same_bits_without_the_original(tmp_path: Path) -> None:
    result, copied = run_copied(tmp_path)
    for path in copied.glob("*.py"):
        path.unlink()
    again = read(result.directory / "run.toml")
    assert again["algorithm"]["name"] == f"{result.directory}/own/mine/fedavgm.py:FedAvgM"
    assert (result.directory / "own" / "mine" / "beside.py").exists()
    assert result.summary["algorithm"] == "fedavgm.py:FedAvgM"
    assert run_here(again, tmp_path / "again").summary["digest"] == result.summary["digest"]


@pytest.mark.slow
def test_own_code_is_found_by_processes_that_are_spawned(tmp_path: Path) -> None:
    result, _ = run_copied(tmp_path)
    spawned = override_value(read(result.directory / "run.toml"), "run.start", "spawn")
    assert run_here(spawned, tmp_path / "spawned").summary["digest"] == result.summary["digest"]


def run_copied(tmp_path: Path) -> tuple[Any, Path]:
    """A run with real processes of examples/own.toml, from a copy of the folder; one file of it imports another."""
    copied = tmp_path / "mine"
    copied.mkdir()
    for path in EXAMPLES.iterdir():
        if path.is_file():
            (copied / path.name).write_text(path.read_text())
    (copied / "beside.py").write_text("BETA = 0.6\n")
    method = (copied / "fedavgm.py").read_text()
    (copied / "fedavgm.py").write_text(
        method.replace("= 0.7", "= BETA").replace("@data", "from beside import BETA\n\n\n@data")
    )
    tables = read(copied / "own.toml")
    run = tables["run"] | {"rounds": 2, "clients": 6, "clients_per_process": 3}
    return run_here(tables | {"run": run, "beside": []}, tmp_path / "out"), copied


WHOLE = (EXAMPLES / "fedavgm.py").read_text()
LACKS = WHOLE.replace("def client_model", "def client_modell")
MISFIT = WHOLE.replace("def server_down(self, all: Tensors, client: int,", "def server_down(self, all: Tensors,")


@pytest.mark.parametrize(
    ("key", "source", "named", "said"),
    [
        (
            "algorithm.name",
            WHOLE,
            "mime.py:FedAvgM",
            "there is no mime.py in {}; there are mine.py; did you mean 'mine.py'?",
        ),
        ("algorithm.name", WHOLE, "no/mine.py:FedAvgM", "there is no folder {}/no"),
        (
            "algorithm.name",
            WHOLE,
            "mine.py:FedAvg",
            ": mine.py has no FedAvg; there are FedAvgM; did you mean 'FedAvgM'?",
        ),
        (
            "algorithm.name",
            LACKS,
            "mine.py:FedAvgM",
            "has no client_model; pflsim/method.py tells what a method must have",
        ),
        (
            "algorithm.name",
            MISFIT,
            "mine.py:FedAvgM",
            "server_down takes (self, all, round) instead of (self, all, client, round): see pflsim/method.py",
        ),
        (
            "algorithm.name",
            "import math\n\nx = 1\ny = x / 0\n",
            "mine.py:X",
            "cannot be imported (ZeroDivisionError: division by zero, in line 4 of mine.py)",
        ),
        (
            "algorithm.name",
            "def broken(:\n",
            "mine.py:broken",
            "cannot be imported (SyntaxError: invalid syntax, in line 1 of mine.py)",
        ),
        (
            "algorithm.name",
            "import not_there\n",
            "mine.py:X",
            "cannot be imported (ModuleNotFoundError: No module named 'not_there', in line 1 of mine.py)",
        ),
        ("algorithm.name", "X = 3\n", "mine.py:X", "must name a function or a class, not a int"),
        (
            "model.name",
            "def net(shape):\n    pass\n",
            "mine.py:net",
            "must take (shape, classes) and its settings after a *, but is net(shape)",
        ),
        ("model.name", "def net(shape, classes):\n    return 3\n", "mine.py:net", "must make a Module, not a int"),
        (
            "model.name",
            "def net(shape, classes):\n    return shape.width\n",
            "mine.py:net",
            "cannot be built: AttributeError: 'tuple' object has no attribute 'width', in line 2 of mine.py",
        ),
        (
            "model.name",
            "from torch import nn\n\n\ndef net(shape, classes):\n"
            "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n",
            "mine.py:net",
            "must return [2, 10] logits for 2 samples of 10 classes, not [2, 3]",
        ),
        (
            "model.name",
            "from torch import nn\n\n\nclass Net(nn.Linear):\n    def forward(self, x):\n"
            "        raise KeyError('x')\n\n\n"
            "def net(shape, classes):\n    return Net(64, 10)\n",
            "mine.py:net",
            "it cannot take samples of shape [1, 8, 8]: KeyError: 'x', in line 6 of mine.py",
        ),
        (
            "data.partition.name",
            "def mine(pool, clients, rng):\n    return [[0, 1]]\n",
            "mine.py:mine",
            "gives 1 clients their samples, and there are 6",
        ),
        (
            "data.partition.name",
            "def mine(pool, clients, rng):\n    return [[0, 1, len(pool)]] * clients\n",
            "mine.py:mine",
            "must give client 0 whole numbers from 0 to 199, each once",
        ),
        (
            "data.partition.name",
            "def mine(pool, clients, rng):\n    return [[0, 1], [1, 1]] + [[2, 3]] * (clients - 2)\n",
            "mine.py:mine",
            "must give client 1 whole numbers from 0 to 199, each once",
        ),
        ("data.name", "def rows():\n    pass\n", "mine.py:rows", "must take (directory) and its settings"),
        ("topology.name", "def g(labels, *, sizes=1):\n    pass\n", "mine.py:g", "must take (labels, sizes, rng) and"),
        (
            "schedule.kind",
            "class Mine:\n    pass\n",
            "mine.py:Mine",
            "must make a Sync or Deadline or WithoutRounds or",
        ),
        ("devices.kind", "def f(of):\n    return [1.0]\n", "mine.py:f", "must give 6 clients a value each"),
        ("devices.kind", "def f():\n    return [1.0]\n", "mine.py:f", "must take (of) and its settings"),
        ("schedule.sampling", "class Mine:\n    pass\n", "mine.py:Mine", "has no check, least, drawn, needs_losses;"),
    ],
)
def test_what_is_missing_in_own_code_is_said(tmp_path: Path, key: str, source: str, named: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    tables = override_value(DIGITS, "schedule.cohort", 2) if key == "schedule.sampling" else DIGITS
    if key == "devices.kind":
        tables = override_value(tables, "devices", {"server_flops_per_second": 1e9})
    with pytest.raises(DescriptionError) as refused:
        Study(validate(override_value(tables, key, str(tmp_path / named))), b"tried")
    assert str(refused.value).startswith(f"{key} = '{tmp_path}/{named}': ")
    assert said.format(tmp_path) in str(refused.value)


@pytest.mark.parametrize(
    ("example", "line", "command"),
    [("round_robin.py:RoundRobin", "clients = len(", ["check"]), ("delay_adaptive.py:DelayAdaptive", "return min(",
     ["run", "--quiet"])],
)  # fmt: skip
def test_what_own_code_raises_while_a_study_is_built_is_told_with_its_line_and_without_a_stack_of_ours(
    example: str, line: str, command: list[str], tmp_path: Path
) -> None:
    """Both are called by pflsim's own code, from which nobody who wrote them can tell what is wrong."""
    file, _, name = example.partition(":")
    source = (EXAMPLES / file).read_text()
    assert source.count(line) == 1
    number = source[: source.index(line)].count("\n") + 1
    (tmp_path / "mine.py").write_text(source.replace(line, f"raise KeyError('mine'); {line}"))
    mine = filled(NAMED[example]["schedule"], f"{tmp_path}/mine.py:{name}")
    (tmp_path / "run.toml").write_text(tomli_w.dumps(override_value(DIGITS, "schedule", mine)))
    words = [sys.executable, "-m", "launch.cli", *command, str(tmp_path / "run.toml")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=50)
    said = f"pflsim: own code = 'mine.py': raised KeyError: 'mine', in line {number} of mine.py\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_list_shows_a_part_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    show_rooms(str(EXAMPLES / "fedavgm.py:FedAvgM"))
    shown = capsys.readouterr().out
    assert "beta" in shown and "momentum of the server" in shown and "Hsu, Qi, Brown" in shown


def test_a_file_is_imported_once_whatever_its_path_is_written_like() -> None:
    load: Callable[[str], Any] = lambda path: outside.load(path, "model.name")  # noqa: E731
    assert load(f"{EXAMPLES}/tiny.py:tiny") is load(f"{EXAMPLES}/../examples/tiny.py:tiny")
