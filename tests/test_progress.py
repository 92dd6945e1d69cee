"""The display of a run, by a clock that the test moves."""

import io
from typing import Any

import pytest

from launch.progress import Progress


class Clock:
    """A host clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def finished(round_: int, correct: int = 9) -> list[tuple[Any, ...]]:
    """What a round of one client tells."""
    return [
        ("sent", "server", "c000", "WORK", "data", round_, round_, 1_000_000, 60, 0, 0),
        ("sent", "server", "c000", "EVAL", "evaluation", round_, round_, 5_000_000, 60, 0, 0),
        ("sent", "c000", "server", "RESULT", "data", round_, round_, 500_000, 60, 0, 0),
        ("received", "c000", "server", "RESULT", "data", round_, 500_000, 60, 0, 0),
        ("received", "server", "c000", "WORK", "data", round_, 1_000_000, 60, 0, 0),
        ("evaluations", round_, 0, 0, "personalised", "test", correct, 10, 0.5),
        ("evaluations", round_, 0, 0, "personalised", "train", 10, 10, 0.0),
        ("evaluations", round_, 0, 0, "global", "test", 1, 10, 2.0),
        ("rounds", round_, 0, round_ * 10**9, 0.5, "[0]", 1, 0),
    ]


def test_a_plain_line_appears_for_every_tenth_of_the_rounds() -> None:
    output, clock = io.StringIO(), Clock()
    with Progress(100, 1, name="FedU", stream=output, clock=clock) as progress:
        for round_ in range(1, 101):
            clock.now_s += 0.5
            progress.update(finished(round_))
    lines = output.getvalue().splitlines()
    assert [line.split()[2] for line in lines] == [f"{tens}0/100" for tens in range(1, 11)]
    assert lines[0] == ("FedU  round 10/100  accuracy 90.0 %  ↑5.00 ↓10.0 MB  1/1 alive  ETA 0:45")
    assert "ETA" not in lines[-1]


def test_long_rounds_show_a_line_every_ten_seconds_but_only_when_something_moved() -> None:
    output, clock = io.StringIO(), Clock()
    progress = Progress(1000, 1, stream=output, clock=clock)
    for round_ in (1, 2, 3):
        clock.now_s += 6
        progress.update(finished(round_))
    assert [line.split()[1] for line in output.getvalue().splitlines()] == ["2/1000"]
    clock.now_s += 60
    progress.update([])
    assert len(output.getvalue().splitlines()) == 2, "the third round had not been shown"
    clock.now_s += 60
    progress.update([("spans", "c000", "compute", 0, 1, 4)])
    assert len(output.getvalue().splitlines()) == 2, "nothing moved"


def test_quiet_shows_nothing_on_any_stream() -> None:
    for stream in (io.StringIO(), Terminal()):
        with Progress(1, 1, quiet=True, stream=stream) as progress:
            progress.say("a line")
            progress.update(finished(1))
        assert stream.getvalue() == ""


def test_joins_deaths_and_restarts_are_counted() -> None:
    progress = Progress(10, 3, quiet=False, stream=io.StringIO(), clock=Clock())
    progress.update([("events", "c000", "joined", "", 0, 0.1), ("events", "c001", "joined", "", 0, 0.1)])
    assert progress.state.parts() == ["starting: 2/3 clients joined"]
    progress.update([("events", "c002", "joined", "", 0, 0.1), ("events", "c001", "died", "signal 9", 0, 0.1)])
    assert "2/3 alive" in progress.state.parts()
    progress.update([("events", "c001", "restarted", "", 0, 0.2)])
    assert "3/3 alive" in progress.state.parts()


def test_accuracy_goes_on_without_who_was_lost() -> None:
    progress = Progress(10, 2, quiet=False, stream=io.StringIO(), clock=Clock())
    evaluated = [("evaluations", 1, 0, client, "global", "test", 5 + client, 10, 0.5) for client in range(2)]
    progress.update([*evaluated, ("evaluations", 2, 0, 0, "global", "test", 9, 10, 0.5)])
    assert progress.state.accuracy == 0.55
    progress.update([("events", "c001", "lost", "was killed by SIGKILL", 0, 0.2)])
    assert progress.state.accuracy == 0.9
    progress.update([("evaluations", 3, 0, 0, "global", "test", 10, 10, 0.5)])
    assert progress.state.accuracy == 1.0


def test_the_pace_of_a_run_that_is_resumed_is_that_since_then() -> None:
    output, clock = io.StringIO(), Clock()
    progress = Progress(100, 1, stream=output, clock=clock)
    progress.go_on_from([fact for round_ in range(1, 61) for fact in finished(round_)])
    assert output.getvalue() == ""
    clock.now_s += 20
    progress.update([fact for round_ in range(61, 71) for fact in finished(round_)])
    assert output.getvalue().splitlines()[-1].endswith("ETA 1:00")


def test_who_has_joined_is_said_while_the_others_still_start() -> None:
    output, clock = io.StringIO(), Clock()
    progress = Progress(10, 3, name="FedU", stream=output, clock=clock)
    clock.now_s += 5
    progress.update([])
    assert output.getvalue() == "", "a description may still be refused"
    progress.update([("events", "c000", "joined", "", 0, 0.1)])
    progress.update([("events", "c001", "joined", "", 0, 0.1)])
    clock.now_s += 2.5
    progress.update([])
    assert output.getvalue().splitlines() == [
        "FedU  starting: 1/3 clients joined",
        "FedU  starting: 2/3 clients joined",
    ]


class Gone(Terminal):
    """A terminal, until it is closed."""

    is_open = True

    def write(self, text: str) -> int:
        if not self.is_open:
            raise OSError(5, "Input/output error")
        return super().write(text)


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_a_terminal_that_is_closed_ends_the_display_and_not_the_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", kind)
    output, clock = Gone(), Clock()
    with Progress(2, 1, name="FedU", stream=output, clock=clock) as progress:
        clock.now_s += 1
        progress.update(finished(1))
        output.is_open = False
        clock.now_s += 1
        progress.update(finished(2))
        progress.say("a line")


def test_accuracy_is_the_headline_models_in_the_latest_evaluation() -> None:
    progress = Progress(10, 1, stream=io.StringIO(), clock=Clock())
    assert progress.state.accuracy is None
    progress.update(finished(1, correct=4) + finished(2, correct=7))
    assert progress.state.accuracy == 0.7


def test_the_pace_does_not_count_the_time_before_everybody_joined() -> None:
    clock = Clock()
    progress = Progress(11, 1, stream=io.StringIO(), clock=clock)
    clock.now_s += 1000
    progress.update([("events", "c000", "joined", "", 0, 0.1)])
    assert progress.remaining_s() is None
    clock.now_s += 2
    progress.update(finished(1))
    assert progress.remaining_s() == 20


def test_a_run_that_stops_early_shows_where_it_stopped() -> None:
    output, clock = io.StringIO(), Clock()
    with Progress(100, 1, stream=output, clock=clock) as progress:
        progress.update(finished(1))
    assert [line.split()[1] for line in output.getvalue().splitlines()] == ["1/100"]


def test_a_terminal_gets_a_live_display_that_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    output, clock = Terminal(), Clock()
    with Progress(2, 1, name="FedU", stream=output, clock=clock) as progress:
        progress.say("37/40 joined, waiting for [c003]")
        for round_ in (1, 2):
            clock.now_s += 1
            progress.update(finished(round_))
    text = output.getvalue()
    assert "round 2/2" in text and "accuracy 90.0 %" in text
    assert "waiting for [c003]" in text
    assert "\x1b[?25l" in text and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    output = Terminal()
    with Progress(1, 1, stream=output, clock=Clock()) as progress:
        progress.update(finished(1))
    assert "\x1b" not in output.getvalue() and "round 1/1" in output.getvalue()
