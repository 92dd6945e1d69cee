"""What a run hands to other programs: its tables, exactly, and models that a plain torch module loads."""

import csv
import json
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file

from launch.export import export
from nodes.sequential import run_sequentially
from pflsim.data.loading import load as load_data
from pflsim.errors import DescriptionError
from pflsim.models.dnn import dnn
from pflsim.record.result import Result
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description, run_here

TABLES = description(
    run={"rounds": 2, "clients": 3, "seed": 1, "clients_per_process": 3},
    algorithm={"name": "ditto"},
    data={"name": "digits", "pool_limit": 600, "partition": {"name": "shards", "classes": 3}},
    model={"name": "dnn", "hidden": [8]},
    record={"models": True},
)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    """A run with real processes that keeps its models."""
    yield run_here(TABLES, tmp_path_factory.mktemp("exported") / "out")


def right(file: Path, x: torch.Tensor, y: torch.Tensor) -> int:
    """How many samples a plain module gets right after loading a file."""
    module = dnn((1, 8, 8), 10, hidden=(8,))
    module.load_state_dict(load_file(file))
    return int((module(x).argmax(1) == y).sum())


def test_a_plain_module_that_loads_a_saved_model_has_the_accuracy_that_the_record_states(result: Result) -> None:
    described = validate(TABLES)
    data = load_data(described.data.model_dump(), described.run.seed.data, 3)
    for client, part in enumerate(data.partition.parts):
        x, y = torch.from_numpy(data.x[part.test]), torch.from_numpy(data.y[part.test])
        for model, file in (("personalised", f"c00{client}"), ("global", "server")):
            (stated,) = result.rows("evaluations", client=client, model=model, split="test", round=2)
            assert right(result.directory / "models" / f"{file}.safetensors", x, y) == stated["correct"]
            assert stated["total"] == len(y) > 20
    files = {path.name for path in (result.directory / "models").iterdir()}
    assert files == {"c000.safetensors", "c001.safetensors", "c002.safetensors", "server.safetensors"}
    with safe_open(result.directory / "models" / "c001.safetensors", "pt") as file:
        assert file.metadata() == {"model": "personalised", "round": "2", "algorithm": "ditto"}
        assert sorted(file.keys()) == ["1.bias", "1.weight", "3.bias", "3.weight"]


def test_nothing_is_saved_unless_it_is_asked_for_and_what_is_never_evaluated_cannot_be(
    result: Result, tmp_path: Path
) -> None:
    without = {key: value for key, value in TABLES.items() if key != "record"}
    plain = run_here(without, tmp_path / "plain")
    assert not (plain.directory / "models").exists()
    assert plain.summary["digest"] == result.summary["digest"]
    with pytest.raises(DescriptionError, match=r"^record\.models = True: needs run\.eval_every of at least 1"):
        validate(TABLES | {"run": TABLES["run"] | {"eval_every": 0}})


def test_csv_json_and_parquet_hold_every_row_of_the_record(
    result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for kind in ("csv", "json", "parquet"):
        export(result.directory, kind, tmp_path / kind)
        assert capsys.readouterr().out == f"exported: {tmp_path / kind}\n"
    for name in ("clients", "rounds", "evaluations", "messages", "spans", "events"):
        rows = result.rows(name)
        with (tmp_path / "csv" / f"{name}.csv").open() as file:
            assert list(csv.DictReader(file)) == [
                {key: "" if value is None else str(value) for key, value in row.items()} for row in rows
            ]
        assert json.loads((tmp_path / "json" / f"{name}.json").read_text()) == rows
        assert parquet.read_table(tmp_path / "parquet" / f"{name}.parquet").to_pylist() == rows
    assert json.loads((tmp_path / "json" / "summary.json").read_text()) == result.summary
    told = parquet.read_table(tmp_path / "parquet" / "summary.parquet").to_pylist()
    assert {row["key"]: row["number"] for row in told}["accuracy.weighted"] == result.accuracy
    curve = json.loads((tmp_path / "json" / "curve.json").read_text())
    assert [row["weighted"] for row in curve if row["model"] == "personalised"] == [
        point.accuracy.weighted for point in result.curve("personalised")
    ]
    with pytest.raises(DescriptionError, match="exists already"):
        export(result.directory, "csv", tmp_path / "csv")


def test_what_an_export_needs_and_has_not_is_said(
    result: Result, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(
        DescriptionError, match=r"needs pyarrow, which is not installed: pip install 'pflsim\[parquet\]'"
    ):
        export(result.directory, "parquet", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    monkeypatch.setitem(__import__("sys").modules, "mlflow.tracking", None)
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    for kind in ("mlflow", "wandb"):
        with pytest.raises(DescriptionError, match=rf"needs {kind}, .* pip install 'pflsim\[{kind}\]'"):
            export(result.directory, kind, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    with pytest.raises(DescriptionError, match=r"^--out = '.*file/new': cannot be made: Not a directory"):
        export(result.directory, "csv", tmp_path / "file" / "new")
    with pytest.raises(DescriptionError, match=r"has no run\.toml"):
        export(tmp_path, "csv", None)


def test_a_result_gives_pandas_tables(result: Result) -> None:
    pytest.importorskip("pandas")
    frame: Any = result.frame("evaluations")
    assert list(frame.columns) == list(result.rows("evaluations")[0])
    assert frame.correct.sum() == sum(row["correct"] for row in result.rows("evaluations"))
    curve = result.frame("curve")
    assert curve[(curve.model == "personalised") & (curve["round"] == 2)].weighted.item() == result.accuracy
    with pytest.raises(ValueError, match="no table"):
        result.frame("nothing")


def test_tensorboard_reads_what_is_exported_for_it(result: Result, tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    export(result.directory, "tensorboard", tmp_path / "board")
    events = reading.EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    told = events.Scalars("weighted/test/personalised")
    assert [event.step for event in told] == [1, 2]
    assert told[-1].value == pytest.approx(result.accuracy, abs=1e-6)
    assert told[-1].wall_time == pytest.approx(result.curve()[-1].simulated_s)


@pytest.mark.parametrize(("damaged", "said"), [('{"a":', "is no JSON: Expecting value"), ("[]", "is no table")])
def test_a_damaged_summary_is_said_to_be_so(damaged: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(damaged)
    with pytest.raises(DescriptionError, match=f"^DIR = '{tmp_path}': has a summary.json that {said}"):
        Result.open(tmp_path)


@pytest.mark.slow
def test_mlflow_reads_what_is_exported_for_it(result: Result, tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("sqlalchemy")
    export(result.directory, "mlflow", tmp_path / "for ö")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow's own calls
        client = tracking.MlflowClient(f"sqlite:///{tmp_path}/for ö/mlflow.db")
        (run,) = client.search_runs([client.get_experiment_by_name("pflsim").experiment_id])
        course = client.get_metric_history(run.info.run_id, "weighted/test/personalised")
        files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert [(one.step, one.value) for one in course] == [
        (point.round, point.accuracy.weighted) for point in result.curve("personalised")
    ]
    assert course[-1].timestamp == round(1000 * result.curve()[-1].simulated_s)
    assert run.data.params["training.step_size"] == "0.1" and run.data.params["algorithm.name"] == "ditto"
    assert run.data.metrics["summary/traffic.payload_bytes_up"] == result.summary["traffic"]["payload_bytes_up"]
    assert run.data.tags["digest"] == result.summary["digest"] and run.info.status == "FINISHED"
    assert files >= {"run.toml", "summary.json"}


@pytest.mark.slow
def test_weights_and_biases_gets_an_offline_run_with_every_number(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    export(result.directory, "wandb", tmp_path / "for it")
    (file,) = (tmp_path / "for it").glob("wandb/offline-run-*/*.wandb")
    records = [messages.Record.FromString(one) for one in _in_the_log_of_leveldb(file.read_bytes())]
    told = [{"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            for record in records if record.HasField("history")]  # fmt: skip
    assert [row["weighted/test/personalised"] for row in told] == [
        point.accuracy.weighted for point in result.curve("personalised")
    ]
    assert [row["_step"] for row in told] == [1, 2] and told[-1]["simulated_s"] == result.curve()[-1].simulated_s
    (run,) = [record.run for record in records if record.HasField("run")][:1]
    assert (run.project, run.display_name) == ("pflsim", result.directory.name)
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["algorithm"]["name"] == "ditto"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with pytest.raises(DescriptionError, match=r"^WANDB_MODE = 'disabled': must be"):
        export(result.directory, "wandb", tmp_path / "other")


def _in_the_log_of_leveldb(log: bytes) -> Iterator[bytes]:
    """What is in a file of Weights & Biases: after 7 bytes, pieces of records in blocks of 32 KiB, each with a head."""
    at, record, block = 7, b"", 32768
    while at + 7 <= len(log):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, kind = struct.unpack("<HB", log[at + 4 : at + 7])
        record += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield record
            record = b""


def test_peers_save_their_models_too_and_a_model_that_is_a_function_is_told_not_saved(tmp_path: Path) -> None:
    facts = run_sequentially(Study(validate(TABLES | {"algorithm": {"name": "dpsgd"}}), b"tried")).facts
    told = {fact[1]: fact[2] for fact in facts if fact[0] == "model"}
    assert sorted(told) == ["c000", "c001", "c002"] and all(load(told[name])["1.bias"].shape == (8,) for name in told)
    mixed = TABLES | {"algorithm": {"name": "apfl", "mix": "output"}}
    facts = run_sequentially(Study(validate(mixed), b"tried")).facts
    assert {fact[1]: bool(fact[2]) for fact in facts if fact[0] == "model"}["c001"] is False
