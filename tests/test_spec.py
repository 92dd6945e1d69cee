"""The run description: what is wrong is refused before anything starts, with key, value, and what was meant."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from launch.comparison import run_all
from pflsim.errors import DescriptionError
from pflsim.spec import (
    Seeds,
    client_names,
    override,
    override_value,
    read,
    validate,
    with_algorithm,
)
from pflsim.study import Study
from tests.launching import ROOT, description

pytestmark = pytest.mark.timeout(60)


def wrong(tables: dict[str, Any], build: bool = False) -> str:
    """What is said about it, by the description itself or by the study that it stands for."""
    with pytest.raises(DescriptionError) as problem:
        found = validate(tables)
        if build:
            Study(found, b"8 bytes.")
    return str(problem.value)


# keys and values


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("run__clintes", 3, "run.clintes = 3: unknown key; known are checkpoint_every, "),
        ("run__clintes", 3, "; did you mean 'clients'?"),
        ("rounds", 3, "; did you mean 'run.rounds'?"),
        ("step_size", 0.1, "; did you mean 'training.step_size'?"),
        ("runs", {}, "runs = {}: unknown key; known are algorithm, "),
        ("run__stop__round", 3, "run.stop.round = 3: unknown key; known are accuracy, bytes, rounds, simulated_s"),
        (
            "run__seed",
            {"trian": 3},
            "run.seed.trian = 3: unknown key; known are data, init, train; did you mean 'train'?",
        ),
        ("training__stepsize", 0.1, "training.stepsize = 0.1: unknown key; known are batch, "),
        ("training__stepsize", 0.1, "; did you mean 'step_size'?"),
        ("time__mod", "wall", "time.mod = 'wall': unknown key; known are mode; did you mean 'mode'?"),
        (
            "record__plots",
            True,
            "record.plots = True: unknown key; known are consensus, log, models, plot, report, spans",
        ),
        ("run__rounds", 0, "run.rounds = 0: input should be greater than 0"),
        ("run__rounds", "ten", "run.rounds = 'ten': input should be a valid integer"),
        ("run__clients", 2.5, "run.clients = 2.5: input should be a valid integer"),
        ("run__name", "a/b", "run.name = 'a/b': string should match pattern"),
        *(
            (
                "run__checkpoint_every",
                value,
                f"run.checkpoint_every = {value!r}: must be a number of rounds, or the host's",
            )
            for value in (-1, 2.5, True, "5", "five min", "5 m", "0 s", "-5 s", "1e3 s", "9" * 400 + " s", ["5 min"])
        ),
        ("run__eval_every", -1, "run.eval_every = -1: input should be greater than or equal to 0"),
        ("run__patience_s", 0, "run.patience_s = 0.0: must be at least 5: a process that has much"),
        ("run__transport", "ip", "run.transport = 'ip': input should be 'ipc' or 'tcp'; did you mean 'ipc'?"),
        ("run__start", "forks", "run.start = 'forks': input should be 'auto', 'fork' or 'spawn'; did you mean 'fork'?"),
        ("time__mode", "virtul", "time.mode = 'virtul': input should be 'virtual' or 'wall'; did you mean 'virtual'?"),
        (
            "run__stop__accuracy",
            1.5,
            "run.stop.accuracy = 1.5: must be above 0 and at most 1: a fraction, not per cent",
        ),
        ("run__device", "cuda", "run.device = 'cuda': only \"cpu\" for now: clients are forked processes"),
        ("training__momentum", 1.0, "training.momentum = 1.0: must lie in [0, 1)"),
        ("training__local_epochs", 2, "give exactly one of local_steps and local_epochs"),
        ("training__schedule", "step", "training.decay = None: schedule 'step' needs a decay"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_what_was_probably_meant(key: str, value: object, said: str) -> None:
    assert said in wrong(description(**{key: value}))


@pytest.mark.parametrize("table", ["algorithm", "data", "model", "devices", "links", "training"])
def test_a_table_without_a_sensible_default_is_required(table: str) -> None:
    tables = description()
    del tables[table]
    assert wrong(tables).startswith(f"{table} is required")


def test_accuracy_cannot_end_a_run_that_never_evaluates() -> None:
    never = description(run__eval_every=0, run__stop__accuracy=0.9)
    assert wrong(never) == "run.stop.accuracy = 0.9: needs run.eval_every of at least 1"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("algorithm__name", "fedavgg", "algorithm.name = 'fedavgg': known are "),
        (
            "algorithm__name",
            "fedavgg",
            '; did you mean \'fedavg\'? (or your own "file.py:Name" or "package.module:Name")',
        ),
        ("algorithm__name", "no.such:Thing", "algorithm.name = 'no.such:Thing': cannot be imported"),
        ("algorithm__name", "tests.accidents:FOREVER_S", "must name a function or a class"),
        ("algorithm__name", "server", "algorithm.name = 'server': is not a method"),
        ("algorithm__weigths", "uniform", "algorithm.weigths = 'uniform': unknown key; known are "),
        ("algorithm__weights", "unifrom", "algorithm.weights = 'unifrom': input should be 'samples' or 'uniform'"),
        ("data__name", "digit", "; did you mean 'digits'?"),
        ("data__sample", 3, "data.sample = 3: unknown key; "),
        ("data__test_share", 1.5, "data.test_share = 1.5: "),
        ("data__partition", {"name": "shard"}, "; did you mean 'shards'?"),
        ("data__partition", {"name": "shards", "clases": 2}, "data.partition.clases = 2: unknown key; "),
        ("model__name", "mlpr", "model.name = 'mlpr': known are "),
        ("model__hiden", [3], "model.hiden = [3]: unknown key; "),
        ("topology__name", "simlar", "; did you mean 'similar'?"),
        ("schedule__kind", "synch", "did you mean 'sync'?"),
        ("schedule", {"sampling": "uniform"}, "schedule.sampling = 'uniform': needs a cohort or a fraction"),
        ("schedule", {"sampling": "uniform", "cohort": 0}, "schedule.cohort = 0: must be at least 1"),
        (
            "schedule",
            {"sampling": "uniform", "fraction": 0.0},
            "schedule.fraction = 0.0: must be above 0 and at most 1",
        ),
        ("links", "wfi", "links = 'wfi': known are 4g, ideal, lan, wan, wifi; did you mean 'wifi'?, or a table"),
        ("devices", "phones", "devices = 'phones': known are phone, raspberry-pi, workstation; did you mean 'phone'?"),
        ("devices__stragglers", 5, "devices.stragglers = 5: must be a count up to 4"),
    ],
)
def test_what_names_a_part_is_checked_against_the_part(key: str, value: object, said: str) -> None:
    assert said in wrong(description(**{key: value}), build=True)


def test_a_method_that_needs_a_graph_says_so() -> None:
    tables = description(algorithm={"name": "fedu"})
    del tables["topology"]
    assert "topology" in wrong(tables, build=True)


def test_more_clients_than_samples_are_refused() -> None:
    assert "run.clients" in wrong(description(run__clients=5000), build=True)


# what is read, and how it is overridden


def test_one_seed_stands_for_all_three() -> None:
    assert validate(description(run__seed=7)).run.seed == Seeds(data=7, init=7, train=7)
    assert validate(description(run__seed={"train": 7})).run.seed == Seeds(data=0, init=0, train=7)


def test_the_effective_description_describes_the_same_run() -> None:
    found = validate(description())
    again = tomli_w.dumps(found.as_tables())
    assert validate(tomllib.loads(again)) == found


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("run.rounds=10", ("run", "rounds"), 10),
        ("training.step_size = 1e-3", ("training", "step_size"), 0.001),
        ('links="lan"', ("links",), "lan"),
        ("links=lan", ("links",), "lan"),
        ("data.partition.name=dirichlet", ("data", "partition", "name"), "dirichlet"),
        ('data.partition={name="iid"}', ("data", "partition"), {"name": "iid"}),
        ("run.stop.accuracy=0.9", ("run", "stop", "accuracy"), 0.9),
        ("run.name=a=b", ("run", "name"), "a=b"),
        ("run.checkpoint_every=5 min", ("run", "checkpoint_every"), "5 min"),
        ("model.hidden=[3,4]", ("model", "hidden"), [3, 4]),
    ],
)
def test_an_override_takes_dotted_keys_and_toml_values(assignment: str, key: tuple[str, ...], value: object) -> None:
    before = description()
    found: Any = override(before, assignment)
    for part in key:
        found = found[part]
    assert found == value
    assert before == description(), "what is overridden is a copy"


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("run.rounds", "--set = 'run.rounds': must be KEY=VALUE, such as run.rounds=10"),
        ("=3", "--set = '=3': must be KEY=VALUE"),
        ("links.latency_ms=3", "links.latency_ms = 3: links is 'wifi' here, not a table"),
    ],
)
def test_an_override_that_cannot_be_is_refused(assignment: str, said: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        override(description(), assignment)
    assert str(problem.value).startswith(said)


def test_an_overridden_value_may_be_anything() -> None:
    assert override_value({}, "a.b.c", [1]) == {"a": {"b": {"c": [1]}}}


def test_a_method_of_the_description_runs_alone_with_its_own_settings() -> None:
    tables = description(
        algorithm={"name": "fedu", "eta_r": 0.5}, beside=[{"name": "local"}, {"name": "fedprox", "mu": 0.3}]
    )
    alone = {name: with_algorithm(tables, name) for name in ("fedu", "fedprox", "scaffold")}
    assert [tables["algorithm"] for tables in alone.values()] == [
        {"name": "fedu", "eta_r": 0.5},
        {"name": "fedprox", "mu": 0.3},
        {"name": "scaffold"},
    ]
    assert all("beside" not in tables for tables in alone.values())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"[run\n", "is not TOML: "),
        (b"\xff\xfe", "is not TOML: "),
    ],
)
def test_a_file_that_is_no_description_is_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DescriptionError) as problem:
        read(path)
    assert str(problem.value).startswith(f"file = {str(path)!r}: {said}")


@pytest.mark.parametrize(
    ("clients", "first", "last"),
    [(1, "c000", "c000"), (40, "c000", "c039"), (1000, "c000", "c999"), (1001, "c0000", "c1000")],
)
def test_the_names_of_clients_sort_as_their_numbers_do(clients: int, first: str, last: str) -> None:
    names = client_names(clients)
    assert (names[0], names[-1], len(names)) == (first, last, clients)
    assert sorted(names) == list(names)


# what the command says and leaves behind

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def pflsim(tmp_path: Path) -> Command:
    """`pflsim(command, tables, arguments...)`, in an empty folder of its own."""

    def command(name: str, tables: dict[str, Any], *arguments: str) -> "subprocess.CompletedProcess[str]":
        path = tmp_path / "described.toml"
        path.write_text(tomli_w.dumps(tables))
        return subprocess.run(
            [sys.executable, "-m", "launch.cli", name, str(path), *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=50,
        )

    return command


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"run__clintes": 3}, "pflsim: run.clintes = 3: unknown key; "),
        ({"algorithm__name": "fedavgg"}, "pflsim: algorithm.name = 'fedavgg': known are "),
        ({"schedule__cohort": 0, "schedule__sampling": "uniform"}, "pflsim: schedule.cohort = 0: must be at least 1"),
        ({"beside": [{"name": "local"}, {"name": "fedprox", "muu": 1}]}, "pflsim: beside.1.muu = 1: unknown key; "),
    ],
)
def test_a_wrong_description_exits_with_2_and_leaves_nothing(
    command: str, settings: dict[str, Any], said: str, pflsim: Command, tmp_path: Path
) -> None:
    arguments = ["--out", str(tmp_path / "out")] if command == "run" else []
    ended = pflsim(command, description(**settings), *arguments)
    assert (ended.returncode, ended.stderr[: len(said)]) == (2, said)
    assert len(ended.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["described.toml"]


def test_a_good_description_exits_with_0_and_prints_where_its_results_lie(pflsim: Command, tmp_path: Path) -> None:
    ended = pflsim("run", description(), "--set", "run.rounds=1", "--out", "out", "--quiet")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "out" in ended.stdout and "fedavg" in ended.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"record.db", "summary.json", "run.toml", "logs"} <= names
    assert pflsim("run", description(), "--out", "out").returncode == 2, "results are never overwritten"


def test_check_prints_the_plan_and_starts_nothing(pflsim: Command, tmp_path: Path) -> None:
    ended = pflsim("check", description(run__clients=7, run__clients_per_process=3))
    assert ended.returncode == 0
    assert "84 parameters" in ended.stdout
    assert "5: host, server, 3 of clients (fork)" in ended.stdout
    assert "clients_per_process = 3" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["described.toml"]


def test_check_tells_what_there_is_to_know_of_the_graph(pflsim: Command) -> None:
    ring = pflsim("check", description(topology={"name": "ring", "weights": "equal"}, run__clients=6))
    told = " ".join(ring.stdout.split())
    assert "graph ring, equal weights: 6 nodes, 6 edges, degrees 2 to 2 (mean 2), 1 component," in told
    assert "lambda_max 2, spectral gap 0.333" in told
    pairs = pflsim("check", description(topology={"name": "matching"}, run__clients=5))
    told = " ".join(pairs.stdout.split())
    assert "matching, round 1, as it changes: 5 nodes, 2 edges, degrees 0 to 1 (mean 0.8), 3 components" in told


def test_usage_that_is_wrong_exits_with_2(pflsim: Command) -> None:
    assert pflsim("run", description(), "--otu", "x").returncode == 2
    assert pflsim("runn", description()).returncode == 2


def test_two_variants_of_one_method_cannot_stand_beside_each_other_in_one_folder(tmp_path: Path) -> None:
    twice = description(beside=[{"name": "fedprox", "mu": 0.1}, {"name": "fedprox", "mu": 0.2}])
    with pytest.raises(DescriptionError, match="names a method twice"):
        run_all(twice, tmp_path / "out", quiet=True)
    assert list(tmp_path.iterdir()) == []
