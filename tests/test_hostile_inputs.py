"""Values that once ended in a traceback: refused with the key and the value."""

import os
from pathlib import Path
from typing import Any

import pytest

from launch.explain import explain
from pflsim.errors import DescriptionError
from pflsim.record.report import write_summary
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"availability": {"kind": {}}}, "availability.kind = {}: known are"),
        ({"fault": [{"kind": [1]}]}, "fault.0.kind = [1]: known are"),
        ({"devices__flops_per_second": 1e-9}, "devices.flops_per_second = 1e-09: must be at least 1 FLOP/s"),
        (
            {"schedule": {"kind": "sync", "cohort": 2, "sampling": "os:getcwd"}},
            "has no check, least, drawn, needs_losses",
        ),
        ({"run__eval_every": 2, "run__eval_every_s": 1.0}, "run.eval_every, run.eval_every_s = (2, 1.0): give one"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        Study(validate(description(**settings)), b"8 bytes.")
    assert said in str(problem.value)


def traced(tmp_path: Path, text: str) -> dict[str, Any]:
    (tmp_path / "speeds.csv").write_text(text)
    devices = {"kind": "trace", "file": str(tmp_path / "speeds.csv"), "server_flops_per_second": 1e9}
    return description(devices=devices, run__clients=1)


def test_a_trace_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    study = Study(validate(traced(tmp_path, "\ufeffclient,flops_per_second\n0,5e9\n")), b"8 bytes.")
    assert study.devices.device("c000").flops_per_second == 5e9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client,flops_per_second\n0,1e-300\n", "line 2: flops_per_second = 1e-300 must be at least 1"),
        ("client,flops_per_second,flops_per_second\n0,1e9,2e9\n", "line 1: has the column 'flops_per_second' twice"),
    ],
)
def test_a_trace_that_cannot_be_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        Study(validate(traced(tmp_path, text)), b"8 bytes.")
    assert said in str(problem.value)


def test_an_evaluation_grid_in_seconds_can_be_run_again_as_its_tables_say() -> None:
    tables = validate(description(run__eval_every_s=1.0)).as_tables()
    assert validate(tables).run.eval_every_s == 1.0


@pytest.mark.parametrize("target", [0.0, 1.5, float("nan")])
def test_a_target_that_is_no_share_is_refused(tmp_path: Path, target: float) -> None:
    with pytest.raises(DescriptionError, match="--target"):
        explain(tmp_path, target=target)


def test_a_summary_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        path.touch()
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(OSError, match="No space"):
        write_summary(tmp_path / "summary.json", {})
    assert list(tmp_path.iterdir()) == []
