"""The wall clock under late news of a pause."""

import pytest

from pflsim.timing import clock


def test_a_clock_that_hears_late_of_a_pause_stands_still_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    host_ns = [1000]
    monkeypatch.setattr(clock, "host_nanoseconds", lambda: host_ns[0])
    client = clock.WallClock(0)
    assert client.now_ns() == 0, "the run has not begun for it"
    client.paused_ns = 900
    assert client.now_ns() == 100
    host_ns[0] = 1500
    assert client.now_ns() == 600
    client.paused_ns = 1300  # the server has paused from 1050 to 1450
    assert client.now_ns() == 600
    host_ns[0] = 1850
    assert client.now_ns() == 600
    host_ns[0] = 2000
    assert client.now_ns() == 700
