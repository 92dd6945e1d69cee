"""`pflsim verify`: on a record, on a description, and at the end of every run."""

import json
import shutil
import sqlite3
from functools import partial
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner

from launch import verify
from launch.cli import guarded, pflsim
from launch.comparison import run_all
from launch.retime import retimed_rounds
from launch.verify import verify_description
from pflsim.errors import DescriptionError, RunFailed, TooEarly
from pflsim.record.result import Result
from tests.launching import BASE, description
from tests.recorded import run_into

TABLES = description(run__rounds=2, links="4g", record__plot=False, record__trace=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("verified") / "run"
    run_all(TABLES, folder, quiet=True)
    return folder


@pytest.fixture
def spoilt(finished: Path, tmp_path: Path) -> Path:
    """The same run, and somebody has made a client compute while it computes."""
    folder = tmp_path / "spoilt"
    shutil.copytree(finished, folder)
    with sqlite3.connect(folder / "record.db") as database:
        database.execute("INSERT INTO spans SELECT actor, what, start_ns + 1, end_ns + 1, round FROM spans")
    return folder


def test_a_finished_run_violates_nothing_and_says_so(finished: Path) -> None:
    done = CliRunner().invoke(pflsim, ["verify", str(finished)])
    assert done.exit_code == 0
    assert done.output.count("holds  ") == 8 and "VIOLATED" not in done.output
    assert Result.open(finished).summary["warnings"] == []


def test_a_violation_is_named_with_examples_and_the_exit_code_is_1(spoilt: Path) -> None:
    done = CliRunner().invoke(pflsim, ["verify", str(spoilt)])
    assert done.exit_code == 1
    assert "VIOLATED     an actor does one thing at a time" in done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert "and " in done.output and "holds        sent = received + lost" in done.output


def test_a_violation_at_the_end_of_a_run_is_a_warning_in_its_summary(spoilt: Path) -> None:
    result = verify.with_violations(Result.open(spoilt))
    written = json.loads((spoilt / "summary.json").read_text())
    assert written == result.summary
    assert any("an actor does one thing at a time" in warning for warning in written["warnings"])


def test_a_description_gives_the_same_digests_in_two_placements(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(tomli_w.dumps(TABLES))
    done = CliRunner().invoke(pflsim, ["verify", str(tmp_path / "run.toml"), "--set", "run.rounds=1"])
    assert done.exit_code == 0, done.output
    assert done.output.count("equal") == 2


def test_different_digests_are_both_shown_and_the_exit_code_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(tables: object, clients_per_process: int, directory: Path) -> dict[str, str]:
        return {"digest": "same", "trace_digest": f"of {clients_per_process}"}

    monkeypatch.setattr(verify, "_run", run)
    (tmp_path / "run.toml").write_text(tomli_w.dumps(TABLES))
    done = CliRunner().invoke(pflsim, ["verify", str(tmp_path / "run.toml")])
    assert done.exit_code == 1
    assert "equal      digest" in done.output and "DIFFERENT  trace_digest" in done.output
    assert "of 1  with 1 to a process" in done.output and "of 2  with 2 to a process" in done.output


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(pflsim, ["explain", str(tmp_path)])
    assert done.exception is not None and "has no run.toml" in str(done.exception)


def test_who_took_part_is_drawn_below_another_run(finished: Path, tmp_path: Path) -> None:
    tables = description(run__rounds=2, schedule={"cohort": 1, "sampling": {"kind": "groups", "groups": 2}})
    for name, one in {"drawn": description(tables, schedule__sampling="uniform"), "stratified": tables}.items():
        run_into(tmp_path / name, one)
    arguments = ["explain", str(tmp_path / "stratified"), "--against", str(tmp_path / "drawn")]
    done = CliRunner().invoke(pflsim, arguments)
    assert done.exit_code == 0, done.output
    drawn = (tmp_path / "stratified" / "participation.svg").read_text()
    assert 0 < drawn.index("drawn: fedavg, uniform") < drawn.index("stratified: fedavg, groups")


UNFINISHED = {
    "failed": "UPDATE events SET what = 'failed' WHERE actor = 'launcher'",
    "interrupted": "UPDATE events SET what = 'interrupted' WHERE actor = 'launcher'",
    "killed": "DELETE FROM events WHERE actor = 'launcher'",
}


@pytest.fixture(params=UNFINISHED)
def unfinished(request: pytest.FixtureRequest, finished: Path, tmp_path: Path) -> Path:
    """A run that came to no end, before c002 had told what it did and what it sent."""
    folder = tmp_path / str(request.param)
    shutil.copytree(finished, folder)
    with sqlite3.connect(folder / "record.db") as database:
        database.execute(UNFINISHED[request.param])
        database.execute("INSERT INTO events VALUES ('c002', 'died', 'c002: it has an accident', 0, 0)")
        database.execute("DELETE FROM sent WHERE sender = 'c002'")
        database.execute("DELETE FROM spans WHERE actor = 'c002'")
    return folder


def test_of_a_run_that_is_not_done_verify_says_what_it_cannot_check_and_what_holds(unfinished: Path) -> None:
    done = CliRunner().invoke(pflsim, ["verify", str(unfinished)])
    assert done.exit_code == 0, done.output
    how = {
        "failed": "this run failed (c002: it has an accident): its record",
        "interrupted": "this run was interrupted: its record",
        "killed": "this run goes on, or was killed: its record",
    }[unfinished.name]
    assert done.output.startswith(how)
    assert done.output.count("holds  ") == 6
    for name in ("completion = dispatch + duration", "sent = received + lost"):
        assert f"not checked  {name}: the run is not done, and not all" in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_of_a_run_that_is_not_done_explain_tells_what_is_known_and_retime_nothing(unfinished: Path) -> None:
    done = CliRunner().invoke(pflsim, ["explain", str(unfinished), "--trace", "--pictures"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("this run ") and "what is not known looks like waiting" in " ".join(
        done.output.split()
    )
    assert "2 rounds took" in done.output
    with pytest.raises(DescriptionError, match="cannot be retimed: this run"):
        retimed_rounds(unfinished, ())


def test_a_run_that_never_came_to_a_round_is_explained_as_that(unfinished: Path) -> None:
    with sqlite3.connect(unfinished / "record.db") as database:
        for table in ("rounds", "spans", "sent", "received", "evaluations"):
            database.execute(f"DELETE FROM {table}")
    done = CliRunner().invoke(pflsim, ["explain", str(unfinished), "--target", "0.9"])
    assert done.exit_code == 0 and "no round has ended yet" in done.output
    for arguments in (["--round", "1"], ["--pictures"]):
        done = CliRunner().invoke(pflsim, ["explain", str(unfinished), *arguments])
        assert isinstance(done.exception, TooEarly) and "no round has ended yet" in str(done.exception)
    done = CliRunner().invoke(pflsim, ["verify", str(unfinished)])
    assert done.exit_code == 0 and "VIOLATED" not in done.output


@pytest.mark.parametrize("content", [b"", b"what no database begins with" * 99])
@pytest.mark.parametrize("command", ["explain", "verify", "retime"])
def test_a_record_that_cannot_be_read_is_a_sentence(
    command: str, content: bytes, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "record.db").write_bytes(content)
    invoked = partial(pflsim.main, [command, str(tmp_path / "run")], standalone_mode=False)
    assert guarded(invoked) == 1
    assert capsys.readouterr().err.startswith("pflsim: the record cannot be read: ")


def test_a_run_that_ended_before_it_began_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for command in ("explain", "verify"):
        done = CliRunner().invoke(pflsim, [command, str(tmp_path)])
        assert "has no run.toml; this run ended before it began" in str(done.exception)


def test_explain_tells_every_part_of_a_round(finished: Path) -> None:
    done = CliRunner().invoke(pflsim, ["explain", str(finished), "--round", "2"])
    assert done.exit_code == 0
    assert done.output.startswith("round 2 took ") and "compute" in done.output and "latency" in done.output


def test_a_run_writes_its_trace_if_asked_and_explain_writes_the_same(finished: Path) -> None:
    written = (finished / "trace.json").read_bytes()
    (finished / "trace.json").unlink()
    assert CliRunner().invoke(pflsim, ["explain", str(finished), "--trace"]).exit_code == 0
    assert (finished / "trace.json").read_bytes() == written


def test_explain_tells_of_the_whole_run(finished: Path) -> None:
    done = CliRunner().invoke(pflsim, ["explain", str(finished), "--target", "0.999"])
    assert done.exit_code == 0
    for part in (
        "the slowest",
        "waited for",
        "how they spent the time",
        "by speed class",
        "held for 3 evaluations: > ",
    ):
        assert part in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_a_run_that_fails_while_it_is_verified_names_no_folder_that_is_gone() -> None:
    slow = BASE["devices"] | {"flops_per_second": 2e6}
    tables = description(schedule={"kind": "fedasync", "concurrency": 3, "timeout_s": 1e-4}, devices=slow)
    with pytest.raises(RunFailed, match="in a row") as problem:
        verify_description(tables)
    assert problem.value.__notes__ == ["that was the run with 1 to a process; `pflsim run` keeps what is recorded"]
