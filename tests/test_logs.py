"""What processes log: lines for programs, in which a person finds one actor, and last words with their stack."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch import logs
from launch.logs import show_logs
from pflsim.errors import DescriptionError, RunFailed
from pflsim.record.result import Result
from tests.launching import ACCIDENT, description, run_here

PACKED = description(run={"rounds": 2, "clients": 4, "seed": 1, "clients_per_process": 2})
ALWAYS = {"level", "event", "process", "run", "seconds"}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    """A run with real processes, two clients in each."""
    yield run_here(PACKED, tmp_path_factory.mktemp("logged") / "out")


def shown(capsys: pytest.CaptureFixture[str], *given: Any, **options: Any) -> list[str]:
    show_logs(*given, **{"follow": False, "raw": False} | options)
    return capsys.readouterr().out.splitlines()


def test_every_line_says_who_when_and_in_which_run(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in shown(capsys, result.directory, None, "debug", raw=True)]
    assert all(line.keys() >= ALWAYS for line in lines)
    assert len({line["run"] for line in lines}) == 1 and len(lines[0]["run"]) == 16
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    assert {line["process"] for line in lines} == {"server", "c000-c001", "c002-c003", "launcher"}
    assert (lines[-1]["process"], lines[-1]["event"]) == ("launcher", "done")


def test_the_lines_about_an_actor_agree_with_the_record_to_the_nanosecond(
    result: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in shown(capsys, result.directory, "c003", "debug", raw=True)]
    logged = [(line["round"], line["simulated_s"], line["lasts_s"]) for line in lines if line["event"] == "compute"]
    assert logged == [
        (row["round"], row["start_ns"] / 1e9, (row["end_ns"] - row["start_ns"]) / 1e9)
        for row in result.rows("spans", actor="c003", what="compute")
    ]
    assert len(logged) == 2 and {line["process"] for line in lines} == {"c002-c003", "server"}
    rounds = [json.loads(line) for line in shown(capsys, result.directory, "server", "info", raw=True)]
    ends = [round(line["simulated_s"] * 1e9) for line in rounds if line["event"] == "round"]
    assert ends == [row["end_ns"] for row in result.rows("rounds")]


def test_a_person_reads_one_line_for_each_and_only_the_levels_that_are_wanted(
    result: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = shown(capsys, result.directory, "c003", "debug")
    (first, *_) = [line for line in everything if "compute" in line]
    start_s = result.rows("spans", actor="c003", what="compute")[0]["start_ns"] / 1e9
    assert f"c003       round 1     at {start_s:11.6f} s  compute  lasts_s=" in first
    assert shown(capsys, result.directory, "c003", "warning") == []
    with pytest.raises(DescriptionError, match=r"^--actor = 'c009': nobody of this name says anything there"):
        show_logs(result.directory, "c009", "debug", follow=False, raw=False)
    with pytest.raises(DescriptionError, match="is it the folder of a run"):
        show_logs(result.directory / "logs", None, "debug", follow=False, raw=False)


def test_how_much_is_logged_is_described(tmp_path: Path) -> None:
    run_here(PACKED | {"record": {"log": "warning"}}, tmp_path / "out")
    assert (tmp_path / "out" / "logs" / "server.jsonl").read_text() == ""
    with pytest.raises(DescriptionError, match=r"record\.log"):
        run_here(PACKED | {"record": {"log": "loud"}}, tmp_path / "no")


def test_last_words_have_their_stack_in_words_and_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = description(algorithm={"name": ACCIDENT, "how": "client raises"})
    with pytest.raises(RunFailed) as failed:
        run_here(tables, tmp_path / "out")
    assert failed.value.actor == "c002"
    said = (tmp_path / "out" / "logs" / "c002.log").read_text()
    assert "Traceback (most recent call last):\n" in said and "accidents.py" in said and "died" in said
    lines = shown(capsys, tmp_path / "out", "c002", "error")
    assert "  ERROR  died" in lines[0] and any(line.startswith("Traceback") for line in lines)


def test_a_log_is_followed_until_the_run_has_ended_and_torn_lines_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "launcher.jsonl").touch()
    later = iter(('{"level": "info", "event": "one", "seconds": 1}\n{"level": "in', 'fo", "event": "two"}\ntorn\n'))

    def write_more(_: float) -> None:
        with (folder / "c000.jsonl").open("a") as file:
            text = next(later, "")
            file.write(text)
        if not text:
            (folder / "launcher.jsonl").write_text('{"level": "info", "event": "done"}\n')

    monkeypatch.setattr(logs.time, "sleep", write_more)
    lines = shown(capsys, tmp_path, None, "debug", follow=True)
    assert [line.split()[-1] for line in lines] == ["one", "two", "torn", "done"]
