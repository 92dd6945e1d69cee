"""The first Ctrl-C ends a run, whenever it comes."""

import signal
import subprocess
import sys
import time

import pytest

from launch.cli import INTERRUPTED
from launch.interrupts import interrupted_once
from tests.launching import ROOT


class _ClearedAway:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.timeout(30)
def test_ctrl_c_that_comes_while_an_object_is_cleared_away_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        _ClearedAway()
        time.sleep(20)
    assert capfd.readouterr().err == ""


def test_what_else_is_dropped_there_is_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(str(dropped.exc_value)))

    class Failing:
        def __del__(self) -> None:
            raise ValueError("in vain")

    with interrupted_once():
        Failing()
    assert told == ["in vain"]


@pytest.mark.parametrize("moment", ["executing", "telling", "ending"])
def test_ctrl_c_ends_with_its_own_code_whenever_it_comes(moment: str) -> None:
    command = [sys.executable, "-m", "tests.interrupted", moment]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == INTERRUPTED
    assert "Traceback" not in ended.stderr
    assert ("pflsim: as it ended, this failed: RunFailed" in ended.stderr) == (moment == "ending")
