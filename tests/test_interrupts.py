"""The first Ctrl-C ends a run, whenever it comes."""

import signal
import sys
import time

import pytest

from launch.interrupts import interrupted_once


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
