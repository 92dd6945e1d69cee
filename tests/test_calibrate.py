"""`pflsim calibrate` measures this host, and a description can name what it wrote."""

import tomllib
from pathlib import Path

import pytest

from launch.calibrate import calibrate
from pflsim.errors import DescriptionError
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description


def test_a_run_on_the_calibrated_host_computes_as_fast_as_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "host.toml"
    calibrate(description(), file)
    measured = tomllib.loads(file.read_text())
    assert 1e6 < measured["flops_per_second"] < 1e13
    assert measured["batch"] == 10 and measured["model"] == "mlr"
    study = Study(validate(description(devices={"file": str(file)})), b"8 bytes.")
    assert {study.devices.device(name).flops_per_second for name in ("server", *study.names)} == {
        measured["flops_per_second"]
    }


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "host.toml"
    file.write_text("mine")
    with pytest.raises(DescriptionError, match="exists already"):
        calibrate(description(), file)
    assert file.read_text() == "mine"
