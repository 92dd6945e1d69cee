"""Whatever a description says, it is either run or refused with the key, the value and what would be right."""

import copy
import gzip
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import date, datetime, time
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy
from torch import nn

from launch.check import check_all
from pflsim.data.loading import Dataset
from pflsim.errors import DescriptionError
from pflsim.spec import override_value, validate, with_algorithm
from pflsim.study import Study
from pflsim.timing.links import PRESETS, resolved
from tests.launching import ROOT, description

BIG = 2**64


def refusal(tables: dict[str, Any]) -> str:
    """What is said against a description, by itself or by the study that it stands for."""
    with pytest.raises(DescriptionError) as problem:
        Study(validate(tables), b"8 bytes.")
    return str(problem.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"run": 5}, "run = 5: must be a table"),
        ({"algorithm": 5}, "algorithm = 5: must be a table"),
        ({"training": []}, "training = []: must be a table"),
        ({"beside": 5}, 'beside = 5: must be a list of tables, such as [{ name = "local" }]'),
        ({"beside": [5]}, "beside.0 = 5: must be a table"),
        ({"beside": [{"name": "a/b"}]}, "beside.0.name = 'a/b': must be a name of letters"),
        ({"beside": [{"nam": "local"}]}, "beside.0.name is required"),
        ({"links": 5}, "links = 5: must be a preset's name or a table"),
        ({"run__clients": True}, "run.clients = True: input should be a valid integer"),
        ({"run__clients": "5"}, "run.clients = '5': input should be a valid integer"),
        ({"run__clients": 5.0}, "run.clients = 5.0: input should be a valid integer"),
        ({"run__clients": 10**9}, "run.clients = 1000000000: input should be less than or equal to 1000000"),
        ({"run__seed": BIG}, f"run.seed = {BIG}: must be a whole number of at most 64 bits"),
        ({"data__seed": BIG}, f"data.seed = {BIG}: must be a whole number of at most 64 bits"),
        ({"data__samples": "200"}, "data.samples = '200': input should be a valid integer"),
        ({"data__samples": True}, "data.samples = True: input should be a valid integer"),
        ({"data__dir": date(2026, 1, 1)}, "must be text, a number, true or false, a list or a table, not a date"),
        ({"run__name": datetime(2026, 1, 1)}, "a list or a table, not a datetime"),
        ({"algorithm__x": [time(1, 2)]}, "algorithm.x.0 = datetime.time(1, 2): must be text"),
        ({"run__patience_s": 4}, "run.patience_s = 4.0: must be at least 5: a process that has much to compute"),
        ({"run__patience_s": float("inf")}, "run.patience_s = inf: must be a finite number"),
        ({"run__stop__simulated_s": float("nan")}, "run.stop.simulated_s = nan: must be a finite number"),
        ({"training__step_size": 1e300}, "training.step_size = 1e+300: must be a finite number, at most 1e+30"),
        ({"training__step_size": 1e10}, "training.step_size = 10000000000.0: must be from 0 to 1e+09"),
        ({"training__step_size": True}, "training.step_size = True: input should be a valid number"),
        (
            {"training__schedule": "exponential", "training__decay": 1e6, "run__rounds": 100},
            "training.decay = 1000000.0: makes the step size larger than 1e+09 by round 100",
        ),
        ({"data__separation": -1.0}, "data.separation = -1.0: must be from 0"),
        ({"data": {"name": "quadratic", "spread": -1.0}}, "data.spread = -1.0: must be from 0"),
        ({"data__partition": {"name": "fedu-style", "base": 1, "sigma": -1.0}}, "data.partition.sigma = -1.0: must be"),
        ({"data__dir": "\0"}, "data.dir = '\\x00': must be text in Unicode"),
        ({"topology": {"name": "weighted", "small_share": float("nan")}}, "topology.small_share = nan: must be a fin"),
        ({"topology": {"name": "weighted", "small_share": 2.0}}, "topology.small_share = 2.0: must be from 0 to 1"),
        ({"topology": {"name": "equal", "weight": 1e308}}, "topology.weight = 1e+308: must be a finite number"),
        ({"topology": {"name": "equal", "weight": -1.0}}, "topology.weight = -1.0: must be from 0"),
        ({"topology": {"name": "similar", "classes_per_client": 0}}, "topology.classes_per_client = 0: must be at"),
        ({"devices__kind": []}, "devices.kind = []: known are bimodal"),
        ({"links": {"preset": []}}, "links.preset = []: known are 4g"),
        ({"links": {"preset": "wifi", "latency_ms": {"kind": {}}}}, "links.latency_ms.kind = {}: known are"),
        ({"links": {"preset": "wifi", "client": {"uplink_mbps": {"kind": 3}}}}, "links.client.uplink_mbps.kind = 3"),
        ({"model__start": []}, "model.start = []: known are"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_key(settings: dict[str, Any], said: str) -> None:
    assert said in refusal(description(**settings))


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ({"name": "ditto", "lam": -0.1}, "algorithm.lam = -0.1: must be a finite number from 0"),
        ({"name": "ditto", "lam": float("nan")}, "algorithm.lam = nan: must be a finite number"),
        ({"name": "ditto", "personal_steps": -1}, "algorithm.personal_steps = -1: must be a finite number from 1"),
        ({"name": "ditto", "eta_p": 0.0}, "algorithm.eta_p = 0.0: must be a finite number above 0"),
        ({"name": "pfedme", "inner_steps": 0}, "algorithm.inner_steps = 0: must be a finite number from 1"),
        ({"name": "pfedme", "beta": -1.0}, "algorithm.beta = -1.0: must be a finite number above 0"),
        ({"name": "pfedme", "mu": -1.0}, "algorithm.mu = -1.0: must be a finite number from 0"),
        ({"name": "fedprox", "mu": -1.0}, "algorithm.mu = -1.0: must be a finite number from 0"),
        ({"name": "fedprox", "mu": "1"}, "algorithm.mu = '1': input should be a valid number"),
        ({"name": "fedu", "eta_r": -1.0}, "algorithm.eta_r = -1.0: must be a finite number from 0"),
        ({"name": "fedu", "eta_r": float("nan")}, "algorithm.eta_r = nan: must be a finite number"),
        ({"name": "fedu", "reg_scale": -1.0}, "algorithm.reg_scale = -1.0: must be a finite number from 0"),
        ({"name": "scaffold", "eta_g": float("nan")}, "algorithm.eta_g = nan: must be a finite number"),
        ({"name": "scaffold", "eta_g": -1.0}, "algorithm.eta_g = -1.0: must be a finite number above 0"),
        ({"name": "fedavg", "finetune": 1}, "algorithm.finetune = 1: input should be a valid boolean"),
    ],
)
def test_every_setting_of_a_method_has_a_range(algorithm: dict[str, Any], said: str) -> None:
    assert said in refusal(description(algorithm=algorithm))


def test_no_method_takes_a_number_that_is_not_finite_whoever_builds_it() -> None:
    federation = Study(validate(description()), b"8 bytes.").federation
    from pflsim.algorithms.ditto import Ditto
    from pflsim.algorithms.fedprox import FedProx
    from pflsim.algorithms.fedu import FedU
    from pflsim.algorithms.pfedme import PFedMe
    from pflsim.algorithms.scaffold import Scaffold

    for wrong in (float("nan"), float("inf"), -1.0):
        for method in (
            Ditto(lam=wrong),
            Ditto(eta_p=wrong),
            FedProx(mu=wrong),
            FedU(eta_r=wrong),
            FedU(reg_scale=wrong),
            PFedMe(lam=wrong),
            PFedMe(eta_p=wrong),
            PFedMe(beta=wrong),
            PFedMe(mu=wrong),
            Scaffold(eta_g=wrong),
        ):
            with pytest.raises(DescriptionError, match=r"must be a finite number"):
                method.check(federation)


def raises(shape: tuple[int, ...], classes: int) -> nn.Module:
    raise LookupError("nothing there")


def no_module(shape: tuple[int, ...], classes: int) -> int:
    return classes


def unreadable(shape: "tuple[int, ...]", classes: int, *, width: "NoSuchType" = 3) -> nn.Module:  # type: ignore[name-defined] # noqa: F821
    raise AssertionError


def no_dataset(directory: Path) -> int:
    return 3


def no_graph(*given: object) -> int:
    return 3


def no_partition(*given: object) -> int:
    return 3


HERE = "tests.test_wrong_inputs"


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        ("model__name", ":x", "must be a name of letters"),
        ("model__name", "..a:b", "model.name = '..a:b': cannot be imported (TypeError"),
        ("model__name", "os:getcwd", "model.name = 'os:getcwd': must take (shape, classes) and its settings "),
        ("model__name", "builtins:dict", "parameters can be told"),
        ("model__name", f"{HERE}:raises", "cannot be built: LookupError: "),
        ("model__name", f"{HERE}:no_module", "must make a Module, not a int"),
        ("model__name", f"{HERE}:unreadable", "types that can be read (NameError: "),
        ("data__name", f"{HERE}:no_dataset", "must make a Dataset, not a int"),
        ("topology__name", f"{HERE}:no_graph", "must make a ndarray, not a int"),
        ("data__partition", {"name": f"{HERE}:no_partition"}, "must make a Partition or Draw or list or tuple, not"),
        ("algorithm__name", "os:getcwd", "algorithm.name = 'os:getcwd': has no client_init"),
        ("schedule__kind", "os:getcwd", "schedule.kind = 'os:getcwd': must make a Sync or Deadline or "),
    ],
)
def test_what_a_user_names_may_be_anything_and_is_refused_with_the_reason(key: str, name: object, said: str) -> None:
    base = {"name": "synthetic"} if key == "data__name" else {}
    assert said in refusal(description(**({"data": base} if base else {}), **{key: name}))


def test_an_error_in_a_method_beside_names_its_place(tmp_path: Path) -> None:
    from launch.comparison import run_all

    for beside, said in (
        ([{"name": "fedavgg"}], "beside.0.name = "),
        ([{"name": "local"}, {"name": "ditto", "lam": -1.0}], "beside.1.lam = "),
        ([{"name": "local", "x": 1}], "beside.0.x = "),
    ):
        for command in (check_all, lambda tables: run_all(tables, tmp_path / "out", quiet=True)):
            with pytest.raises(DescriptionError) as problem:
                command(description(beside=beside))
            assert str(problem.value).startswith(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tables", [{"algorithm": 5}, {"beside": 5}, {"beside": [5]}])
def test_choosing_a_method_looks_for_it_where_there_are_tables(tables: dict[str, Any]) -> None:
    assert with_algorithm(description(**tables), "local")["algorithm"] == {"name": "local"}


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("text", ["run = 5", "algorithm = 5", "run.name = 1979-05-27", "a = " + "[" * 5000])
def test_the_command_ends_with_2_and_one_sentence(command: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "launch.cli", command, "wrong.toml"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]


def test_numbers_of_numpy_and_any_mapping_are_taken_from_python() -> None:
    given = description(training__step_size=np.float32(0.5), run__clients=np.int64(4))
    found = validate(MappingProxyType(given))
    assert (found.training.step_size, found.run.clients) == (0.5, 4)
    with pytest.raises(DescriptionError, match=r"run = 5: must have text for its keys"):
        validate(description(run={5: 1}))


# data files


def an_npz(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def with_header(shape: tuple[int, ...]) -> Callable[[Path], None]:
    """An archive whose x says that it has `shape`, and holds 8 bytes."""

    def write(path: Path) -> None:
        header = io.BytesIO()
        npy.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", header.getvalue() + bytes(8))
            archive.writestr("y.npy", header.getvalue() + bytes(8))

    return write


X, Y = np.zeros((40, 3), np.float32), np.arange(40) % 2


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (an_npz(x=np.full((40, 3), "1.5"), y=Y), "x must be [n, ...] real numbers"),
        (an_npz(x=np.float32(3), y=Y), "x must be [n, ...] real numbers"),
        (an_npz(x=np.zeros(40), y=Y), "x must be [n, ...] real numbers"),
        (an_npz(x=X + 1j, y=Y), "x must be [n, ...] real numbers"),
        (an_npz(x=X, y=Y, x_test=X[:3] + 1j, y_test=Y[:3]), "x_test must be [n, ...] real numbers"),
        (an_npz(x=np.full((40, 3), 1e300), y=Y), "has values that are not finite numbers"),
        (an_npz(x=np.zeros((40, 0)), y=Y), "x must have a row at least"),
        (an_npz(x=X[:0], y=Y[:0]), "x must have a row at least"),
        (an_npz(x=X, y=Y, x_test=X[:0], y_test=Y[:0]), "x_test must have a row at least"),
        (an_npz(x=X, y=Y * 2**40), "classes by its largest label: at most 100000"),
        (an_npz(x=X, y=-Y), "labels must be whole numbers from 0"),
        (an_npz(x=X, y=Y.astype("U")), "y must be [n] numbers"),
        (an_npz(x=X, y=Y[:-1]), "y does not have one value for each of 40 rows"),
        (with_header((10**12, 100)), "the header of x.npy says (1000000000000, 100), which is not what the file holds"),
        (with_header((-1, 2)), "which is not what the file holds"),
        (lambda path: path.write_bytes(b"PK\x03\x04 and so on"), "cannot be read as an npz archive"),
        (lambda path: path.write_bytes(b"\x93NUMPY\1\0"), "cannot be read as an npz archive"),
    ],
)
def test_an_archive_that_is_no_data_set_is_refused(write: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    write(tmp_path / "own.npz")
    assert said in refusal(description(data={"name": "npz", "dir": str(tmp_path), "file": "own.npz"}))


def test_an_archive_may_hold_whole_numbers_truth_values_and_far_more_than_it_weighs(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "own.npz", x=np.zeros((4000, 100), bool), y=np.arange(4000) % 2)
    found = Study(validate(description(data={"name": "npz", "dir": str(tmp_path), "file": "own.npz"})), b"8 bytes.")
    assert found.data.x.shape == (4000, 100)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("", b"\0\0\x08\x03" + b"\xff\xff\xff\xff" * 3 + b"12", "where its header says 79228162458924105385300197375"),
        ("", b"\0\0\x08\x00", "is not an idx file of bytes"),
        ("", b"\0\0\x08\x7f" + b"\0\0\0\1" * 127 + b"1", "is not an idx file of bytes"),
        (".gz", gzip.compress(bytes(range(256)) * 9)[:12] + b"\xff" * 40, "cannot be read: "),
        (".gz", gzip.compress(bytes(2000))[:-9], "cannot be read: "),
    ],
)
def test_a_damaged_idx_file_is_refused(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / f"train-images-idx3-ubyte{name}").write_bytes(content)
    assert said in refusal(description(data={"name": "mnist", "dir": str(tmp_path)}))


# what works in part


def normalising(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, classes))


def test_a_batch_of_one_sample_is_refused_where_the_model_cannot_take_it() -> None:
    # 200 samples of 4 clients, a quarter of each for testing: 37 to train on
    given = description(model={"name": f"{HERE}:normalising"})
    said = refusal(override_value(given, "training.batch", 12))
    assert said.startswith("training.batch = 12: leaves c000, with 37 training samples, a batch of a single one")
    assert said.endswith("13 would do")
    assert Study(validate(override_value(given, "training.batch", 13)), b"8 bytes.").network.takes_one is False
    assert "a single sample to be evaluated on" in refusal(override_value(given, "data.test_share", 0.01))
    assert Study(validate(description(training__batch=12)), b"8 bytes.").network.takes_one


def test_a_cohort_larger_than_the_federation_is_everybody_with_a_warning() -> None:
    for schedule in ({"sampling": "uniform", "cohort": 9}, {"kind": "deadline", "deadline_s": 1.0, "cohort": 9}):
        found = Study(validate(description(schedule=schedule)), b"8 bytes.")
        assert found.round(0).cohort == (0, 1, 2, 3)
        assert found.warnings == ["schedule.cohort = 9: there are 4 clients, all of whom work"]


def test_more_clients_than_have_samples_cannot_be_drawn_by_samples() -> None:
    pooled = {"name": "pooled", "of": {"name": "iid"}}
    tables = description(data__partition=pooled, schedule={"sampling": "by-samples", "cohort": 2})
    assert "draws 2 clients, of whom only 1 have samples: a smaller cohort" in refusal(tables)
    assert Study(validate(override_value(tables, "schedule.cohort", 1)), b"8 bytes.").round(0).cohort == (0,)


def test_check_counts_everybody_where_a_method_lets_everybody_work(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = {"schedule": {"sampling": "uniform", "cohort": 2}}
    for train_all, clients in ((True, 4), (False, 2)):
        check_all(description(algorithm={"name": "pfedme", "lam": 1.0, "train_all": train_all}, **drawn))
        assert f"per round  {clients} clients, 336 bytes each" in capsys.readouterr().out


def test_a_preset_of_links_may_be_varied_in_one_number() -> None:
    wifi = PRESETS["wifi"]
    varied = resolved({"preset": "wifi", "latency_ms": 50, "client": {"uplink_mbps": 5}})
    assert varied == wifi | {"latency_ms": 50.0, "client": {"uplink_mbps": 5.0, "downlink_mbps": 100.0}}
    assert resolved({"preset": "wan"}) == resolved("wan")
    assert PRESETS["wifi"]["client"]["uplink_mbps"] == 100.0, "the preset is as it was"
    assert "links.latency = 3: unknown key" in refusal(description(links={"preset": "wifi", "latency": 3}))


def test_a_preset_of_devices_may_be_varied_too() -> None:
    from pflsim.timing import devices

    assert devices.resolved({"preset": "phone", "jitter": 0.3}) == devices.resolved("phone") | {"jitter": 0.3}
    assert "devices.preset = 'phon': known are" in refusal(description(devices={"preset": "phon"}))


def test_fedu_normalised_is_as_stable_for_many_clients_as_for_few() -> None:
    for clients in (4, 40):
        tables = description(run__clients=clients, topology={"name": "equal", "weight": 1.0}, training__local_steps=10)
        tables["algorithm"] = {"name": "fedu", "eta_r": 0.9, "reg_R": "steps", "normalised": True}
        assert Study(validate(tables), b"8 bytes.").warnings == []
    tables["algorithm"] |= {"normalised": False}
    assert "c lambda_max(L)" in refusal(tables)  # 0.1 x 10 x 0.9 x 40


def test_fedu_normalised_moves_as_far_as_eta_r_over_lambda_max_says() -> None:
    plain = description(topology={"name": "equal", "weight": 1.0}, training__step_size=0.5)
    rates = []
    for algorithm in ({"eta_r": 0.1}, {"eta_r": 0.4, "normalised": True}):
        study = Study(validate(override_value(plain, "algorithm", {"name": "fedu", **algorithm})), b"8 bytes.")
        assert study.federation.lambda_max == 4.0
        rates.append(study.method._c(study.federation, 0.5))
    assert rates[0] == pytest.approx(rates[1], rel=1e-15)


@pytest.mark.parametrize(("step_size", "lam"), [(0.01, 15.0), (1 / 15, 15.0), (0.3, 1 / 0.3)])
def test_pfedme_without_lambda_takes_the_papers_unless_it_would_overshoot(step_size: float, lam: float) -> None:
    found = Study(validate(description(algorithm={"name": "pfedme"}, training__step_size=step_size)), b"8 bytes.")
    assert found.method._envelope.strength(found.training) == pytest.approx(lam)
    assert bool(found.warnings) == (lam < 15.0)


# anything at all

FULL: dict[str, Any] = description(
    run={"rounds": 2, "clients": 4, "seed": {"data": 1}, "stop": {"accuracy": 0.9}, "patience_s": 600.0},
    data={
        "name": "synthetic",
        "samples": 60,
        "partition": {"name": "shards", "classes": 2},
        "downsample": {"keep": 0.5},
    },
    algorithm={"name": "fedu", "eta_r": 0.1},
    schedule={"kind": "sync", "sampling": "uniform", "cohort": 2},
    links={"preset": "wifi", "jitter_ms": 1.0},
    beside=[{"name": "local"}],
)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([BIG, -BIG, 2**63 - 1, -(2**63), 10**9]),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["phone", "wifi", "iid", "pooled", "dirichlet", "equal", "all", "by-samples", "mlr", "dnn"]),
    st.sampled_from(["fedprox", "pfedme", "ditto", "scaffold", ":x", "os:getcwd", "a:b:c", "deadline", "fedbuff"]),
    st.dates(),
    st.times(),
    st.recursive(
        st.integers(-1, 9) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=4,
    ),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in nested tables and lists."""
    if isinstance(value, dict):
        return [path, *(place for key in value for place in places(value[key], (*path, key)))]
    if isinstance(value, list):
        return [path, *(place for number, inner in enumerate(value) for place in places(inner, (*path, number)))]
    return [path]


KEYS = st.sampled_from(["name", "kind", "classes", "lam", "sigma", "low", "hidden", "start", "fraction", "of", "x"])


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_change_of_a_description_makes_one_that_works_or_is_refused(data: st.DataObject) -> None:
    tables = copy.deepcopy(FULL)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from([place for place in places(tables) if place]))
        target: Any = tables
        for part in place[:-1]:
            target = target[part]
        inner, odd = target[place[-1]], data.draw(ODD)
        if isinstance(inner, dict) and data.draw(st.booleans()):
            inner[data.draw(KEYS | st.text(max_size=4))] = odd
        else:
            target[place[-1]] = odd
    if places_too_much(tables):
        return
    try:
        Study(validate(tables), b"8 bytes.").plan()
    except DescriptionError as problem:
        assert problem.key and problem.expected


def places_too_much(tables: dict[str, Any]) -> bool:
    """Whether so much is asked for that trying it would take a minute or all memory; nothing is wrong with it."""
    data = tables.get("data")
    samples = data.get("samples") if isinstance(data, dict) else 0
    return isinstance(samples, int) and 10**6 < samples < 2**63


def test_a_data_set_of_text_is_refused_also_from_a_users_own_function() -> None:
    with pytest.raises(DescriptionError, match="x must be numbers"):
        Dataset("own", np.full((3, 2), "a"), np.zeros(3, int), 2)


# who is never there


def without(*clients: int) -> list[dict[str, Any]]:
    return [{"kind": "crash", "clients": list(clients), "keeps_state": True}]


def test_a_quorum_of_clients_that_never_come_is_refused_at_the_start() -> None:
    schedule = {"kind": "deadline", "deadline_s": 1.0, "minimum": 3}
    tables = description(schedule=schedule, fault=without(2, 3))
    with pytest.raises(DescriptionError, match="must be at most 2, as c002, c003 will never be there") as refused:
        Study(validate(tables), b"8 bytes.")
    assert refused.value.key == "schedule.minimum"
    Study(validate(override_value(tables, "schedule.minimum", 2)), b"8 bytes.")


def test_a_run_to_which_nobody_ever_comes_is_refused_at_the_start() -> None:
    schedule = {"kind": "deadline", "deadline_s": 1.0}
    with pytest.raises(DescriptionError, match="no client would ever be there"):
        Study(validate(description(schedule=schedule, fault=without(0, 1, 2, 3))), b"8 bytes.")


def test_a_peer_that_never_comes_is_refused_at_the_start() -> None:
    with pytest.raises(DescriptionError, match="c002 would never be there"):
        Study(validate(description(algorithm={"name": "dfedu"}, fault=without(2))), b"8 bytes.")
