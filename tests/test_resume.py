"""Runs with real processes that are killed, whoever it is and whenever, and go on from their last checkpoint."""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import pflsim
from launch.checkpoints import MANIFEST, Checkpoint, Checkpoints, _digest
from launch.resume import resume
from nodes.sequential import run_sequentially
from pflsim.errors import DescriptionError
from pflsim.record.database import Reader, Record
from pflsim.record.tables import TABLES
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import Launched, description, launcher, run_here
from tests.test_chaos import ENGINES
from tests.test_codec_runs import SERVER_CODECS
from tests.test_peers_chaos import ENGINES as ALL_PEER_ENGINES

pytestmark = pytest.mark.timeout(60)

EVERY = 4
FAILED = 1
PEER_ENGINES = {f"peers, {engine}": settings for engine, settings in ALL_PEER_ENGINES.items()}
Launch = Callable[..., Launched]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`launch(tables)` starts `pflsim run`, `launch(tables, command="resume")` lets it go on."""
    yield from launcher(tmp_path)


def long(engine: str, **settings: Any) -> dict[str, Any]:
    """A run of some seconds that keeps a checkpoint every few rounds."""
    slow = {"devices__flops_per_second": 2e6, "devices__jitter": 0.5, "record__plot": False}
    size = {"run__clients": 5, "run__rounds": 120, "run__eval_every": 3, "run__checkpoint_every": EVERY}
    peers = {"algorithm": {"name": "dpsgd"}, "topology": {"name": "ring"}} if engine in PEER_ENGINES else {}
    return description(schedule=(ENGINES | PEER_ENGINES)[engine], **(slow | size | peers | settings))


@cache
def expected(engine: str) -> dict[str, Any]:
    """What an undisturbed run says in the end."""
    return undisturbed(long(engine))


def undisturbed(tables: dict[str, Any]) -> dict[str, Any]:
    return run_sequentially(Study(validate(tables), b"8 bytes.")).finished()


def assert_ends_the_same(out: Path, engine: str, **settings: Any) -> None:
    whole = undisturbed(long(engine, **settings)) if settings else expected(engine)
    summary = resume(out, quiet=True).summary
    assert summary["status"] == "done"
    assert summary["warnings"] == [], "the record holds what must hold"
    assert summary["traffic"]["ends_agree"]
    for said in ("digest", "trace_digest", "rounds", "stopped"):
        assert summary[said] == whole[said]


def kill(run: Launched, who: str, moment: random.Random) -> None:
    """Kill somebody some time after a checkpoint, or after a further one, and wait until nothing is left."""
    kept = Checkpoints(run.out).last_round()
    later = kept + EVERY * moment.randint(1, 3)
    run.wait_for(lambda run: Checkpoints(run.out).last_round() >= later)
    time.sleep(moment.random() * 0.1)
    if who == "hub":
        who = "server" if (run.out / "logs" / "server.log").exists() else "coordinator"
    pid = run.process.pid if who == "launcher" else run.pid_of(who)
    os.kill(pid, signal.SIGKILL)
    run.finish(within_s=30)
    assert run.nothing_left(within_s=10)


def test_a_client_is_killed_and_the_run_goes_on_to_the_same_end(launch: Launch) -> None:
    run = launch(long("sync"))
    kill(run, "c002", random.Random(1))
    assert f"pflsim: `pflsim resume {run.out}` goes on after round " in run.stderr
    assert_ends_the_same(run.out, "sync")
    assert not (run.out / "checkpoints").exists(), "nobody needs them any more"


@pytest.mark.parametrize("engine", ["sync", "fedasync"])
def test_so_it_does_with_what_a_codec_has_to_carry_over(engine: str, launch: Launch) -> None:
    codec = {"codec": SERVER_CODECS["carried over"]}
    run = launch(long(engine, **codec))
    kill(run, "c002", random.Random(3))
    assert_ends_the_same(run.out, engine, **codec)


def test_so_it_does_among_peers(launch: Launch) -> None:
    """Some of which share a process."""
    run = launch(long("peers, pairs", run__clients_per_process=2))
    kill(run, "c002-c003", random.Random(2))
    assert_ends_the_same(run.out, "peers, pairs")


@pytest.mark.parametrize("engine", ["sync", "fedasync", "peers, asynchronous"])
def test_so_it_does_where_the_hosts_time_says_when_a_checkpoint_is_kept(engine: str, launch: Launch) -> None:
    settings = {"run__checkpoint_every": "0.2 s", "run__rounds": 600}
    run = launch(long(engine, **settings))
    kill(run, "c002", random.Random(4))
    assert_ends_the_same(run.out, engine, **settings)


@pytest.mark.parametrize("engine", ["sync", "peers, sync"])
def test_a_run_goes_on_by_itself_whoever_is_killed_and_how_often(engine: str, launch: Launch) -> None:
    run = launch(long(engine, run__on_loss="restart"))
    for times, who in enumerate(("c002", "server" if engine == "sync" else "coordinator"), 1):
        kept = Checkpoints(run.out).last_round()
        run.wait_for(lambda run, later=kept + EVERY: Checkpoints(run.out).last_round() >= later)
        os.kill(run.pid_of(who), signal.SIGKILL)
        run.wait_for(lambda run, times=times: run.stderr.count("going on after round") == times)
    assert run.finish(within_s=60) == 0, run.stderr
    assert run.nothing_left()
    summary = json.loads((run.out / "summary.json").read_text())
    for said in ("digest", "trace_digest", "rounds", "stopped"):
        assert summary[said] == expected(engine)[said]
    whys = [row["detail"] for row in run.rows("events", what="restarted")]
    assert "was killed by SIGKILL" in whys[-1]


def test_a_run_that_fails_at_the_same_place_again_does_not_begin_for_ever(launch: Launch) -> None:
    failing = {"name": "tests.accidents:Accident", "how": "client raises", "client": 2, "round": 5}
    run = launch(long("sync", run__on_loss="restart", algorithm=failing))
    assert run.finish(within_s=60) == FAILED
    assert run.stderr.count(f"going on after round {EVERY}") == 1
    assert run.nothing_left()


def test_a_run_that_shall_go_on_needs_checkpoints_and_one_that_goes_on_without_clients_has_none() -> None:
    for settings, complaint in (
        ({"run__on_loss": "restart"}, "run.on_loss = 'restart': needs run.checkpoint_every, such as 10 (rounds) or "),
        ({"run__on_loss": "continue", "run__checkpoint_every": 3}, "run.checkpoint_every = 3: needs run.on_loss = "),
    ):
        with pytest.raises(DescriptionError, match=re.escape(complaint)):
            validate(description(**settings))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("who", ["hub", "c002", "host", "launcher"])
@pytest.mark.parametrize(
    "engine",
    ["sync", "carry", "fedasync", "fedbuff", "peers, sync", "peers, asynchronous", "peers, push", "peers, pairs"],
)
@pytest.mark.parametrize("seed", range(int(os.environ.get("PFLSIM_KILLS", "1"))))
def test_so_it_does_whoever_is_killed_and_whatever_the_schedule_also_twice(
    seed: int, engine: str, who: str, launch: Launch
) -> None:
    """`PFLSIM_KILLS` says at how many moments."""
    moment = random.Random(f"{seed} {engine} {who}")
    run = launch(long(engine))
    kill(run, who, moment)
    if moment.random() < 0.5:
        kill(launch(long(engine), command="resume"), who, moment)
    assert_ends_the_same(run.out, engine)


def told(record: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of a record, without what the host decides, and without that the run was resumed.

    A promise is recorded as of when its receiver happens to hear of it; what peers say about who may go on is never
    twice the same, and counts in their control messages.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    with Reader(record) as reader:
        for table in TABLES:
            rows = [{name: plain(one) for name, one in row.items() if name != "wall_s"} for row in reader.rows(table)]
            if table == "received":
                rows = [row | ({"arrival_ns": 0} if row["kind"] == "PROMISE" else {}) for row in rows]
            if table == "events":
                rows = [row | {"detail": ""} for row in rows if row["what"] != "resumed"]
            if table in ("sent", "received") and reader.rows("steps"):
                rows = [row for row in rows if row["channel"] == "data"]
            found[table] = sorted(rows, key=str)
    return found


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("engine", ["fedbuff", "peers, asynchronous"])
def test_the_record_is_that_of_an_undisturbed_run(engine: str, launch: Launch, tmp_path: Path) -> None:
    run = launch(long(engine))
    kill(run, "launcher", random.Random(2))
    resume(run.out, quiet=True)
    undisturbed = run_here(long(engine), tmp_path / "undisturbed")
    assert told(run.out / "record.db") == told(undisturbed.record)


def killed(launch: Launch, engine: str = "sync") -> Launched:
    """A run of which two checkpoints are left."""
    run = launch(long(engine))
    run.wait_for(lambda run: Checkpoints(run.out).last_round() >= 3 * EVERY)
    os.kill(run.process.pid, signal.SIGKILL)
    run.finish(within_s=10)
    assert run.nothing_left(within_s=10)
    return run


def test_a_checkpoint_of_peers_serves_as_often_as_the_run_is_killed_before_the_next(tmp_path: Path) -> None:
    """What they say to their coordinator is forgotten, also where it came last; what is told then takes its rows."""

    def sent(kind: str, sequence: int) -> tuple[Any, ...]:
        return ("sent", "c000", "coordinator" if kind == "WAITING" else "c001", kind, "data", sequence, 1, 8, 8, 8, 5)

    checkpoints, file = Checkpoints(tmp_path), tmp_path / "checkpoints" / "000004" / "c000.crossed"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"what was under way")
    with Record(tmp_path / "record.db", numbered=True) as record:
        record.write([sent("PUSH", 1), sent("WAITING", 2), sent("WAITING", 3)])
        digests = {file.name: sha256(file.read_bytes()).hexdigest()}
        checkpoints.complete(Checkpoint(4, 1.0, digests, record.last_rows(), {}, "code"))
        for _ in range(3):
            found = checkpoints.last(pytest.fail)
            assert found is not None
            checkpoints.go_back_to(found, record)
            with Reader(tmp_path / "record.db") as reader:
                assert [row["kind"] for row in reader.rows("sent")] == ["PUSH"]
            record.write([sent("WAITING", 1 << 32), sent("PUSH", 4), sent("PUSH", 5)])


def test_a_resume_that_is_refused_changes_nothing(launch: Launch) -> None:
    run = killed(launch)
    described = tomllib.loads((run.out / "run.toml").read_text())
    described["versions"]["torch"] = "0.1"
    (run.out / "run.toml").write_text(tomli_w.dumps(described))
    (run.out / "summary.json").write_text("{}")
    manifest = run.out / "checkpoints" / f"{Checkpoints(run.out).last_round():06d}" / MANIFEST
    checkpoint = json.loads(manifest.read_text())["checkpoint"]
    checkpoint["run"]["versions"]["torch"] = "0.1"
    manifest.write_text(json.dumps({"sha256": _digest(checkpoint), "checkpoint": checkpoint}))
    kept, rows = files(run.out), {table: run.rows(table) for table in TABLES if table != "events"}
    with pytest.raises(DescriptionError, match=r"the version of torch = .*: must be 0\.1, with which this run began"):
        resume(run.out, quiet=True)
    assert files(run.out) == kept
    assert {table: run.rows(table) for table in rows} == rows


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a run's folder, but for its logs and its record."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in found if path.suffix in (".json", ".toml", ".state")}


@pytest.mark.parametrize("torn", ["c003.state", MANIFEST])
def test_a_torn_checkpoint_is_told_by_its_checksum_and_the_one_before_is_used(torn: str, launch: Launch) -> None:
    run = killed(launch)
    last = Checkpoints(run.out).last_round()
    file = run.out / "checkpoints" / f"{last:06d}" / torn
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    said: list[str] = []
    found = Checkpoints(run.out).last(said.append)
    assert found is not None
    assert found.round == last - EVERY
    assert any(f"{last:06d}" in line and torn in line for line in said), said
    assert_ends_the_same(run.out, "sync")


def test_a_file_that_cannot_be_read_is_as_one_that_is_torn(launch: Launch) -> None:
    run = killed(launch)
    last = Checkpoints(run.out).last_round()
    file = run.out / "checkpoints" / f"{last:06d}" / "server.state"
    file.unlink()
    file.mkdir()
    found = Checkpoints(run.out).last(lambda line: None)
    assert found is not None and found.round == last - EVERY
    assert_ends_the_same(run.out, "sync")


def test_one_that_was_written_and_never_named_does_not_count(launch: Launch) -> None:
    run = killed(launch)
    last = Checkpoints(run.out).last_round()
    place = run.out / "checkpoints" / f"{last:06d}"
    (place / MANIFEST).rename(place / f"{MANIFEST}.unfinished")
    assert Checkpoints(run.out).last_round() == last - EVERY
    assert_ends_the_same(run.out, "sync")


def test_the_launcher_is_killed_when_it_has_written_a_checkpoint_and_not_named_it(launch: Launch) -> None:
    run = launch(long("sync"), before=(sys.executable, "-m", "tests.killed_completing", "3"))
    assert run.finish(within_s=40) == -signal.SIGKILL
    assert run.nothing_left(within_s=10)
    assert (run.out / "checkpoints" / f"{3 * EVERY:06d}" / f"{MANIFEST}.unfinished").exists()
    assert Checkpoints(run.out).last_round() == 2 * EVERY
    assert_ends_the_same(run.out, "sync")


def test_a_client_is_killed_when_it_has_written_itself_down_and_not_named_that(launch: Launch, tmp_path: Path) -> None:
    algorithm = {"name": "tests.accidents:KilledWriting", "mark": str(tmp_path / "mark")}
    run = launch(long("sync", algorithm=algorithm))
    assert run.finish(within_s=40) == FAILED
    assert (run.out / "checkpoints" / f"{2 * EVERY:06d}" / "c002.state.unfinished").exists()
    assert Checkpoints(run.out).last_round() == EVERY
    assert_ends_the_same(run.out, "sync")


def test_another_description_other_versions_and_other_code_are_refused_by_name(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = killed(launch)
    described = run.out / "run.toml"
    whole = described.read_text()
    described.write_text(whole.replace("step_size = 0.1", "step_size = 0.2"))
    with pytest.raises(DescriptionError, match=r"training\.step_size = 0\.2: was 0\.1 when this run began"):
        resume(run.out, quiet=True)
    described.write_text(whole)
    with monkeypatch.context() as patched, pytest.raises(DescriptionError, match=r"the code of pflsim = .*: must be "):
        patched.setattr("launch.resume.code_of", lambda directory: "another code")
        resume(run.out, quiet=True)
    assert_ends_the_same(run.out, "sync")


def test_a_run_that_is_done_a_run_that_goes_on_and_one_without_a_checkpoint_say_so(
    launch: Launch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = run_here(description(), tmp_path / "done")
    assert resume(done.directory).summary["digest"] == done.summary["digest"]
    assert "is done already" in capfd.readouterr().err
    shutil.copytree(done.directory, tmp_path / "without")
    with pytest.raises(DescriptionError, match=r"has no checkpoint to go on from; run it again: pflsim run .*toml"):
        forget_the_end(tmp_path / "without")
        resume(tmp_path / "without")
    run = launch(long("sync"))
    run.wait_for(lambda run: Checkpoints(run.out).last_round() > 0)
    with pytest.raises(DescriptionError, match="is that of a run that goes on right now"):
        resume(run.out)


def forget_the_end(directory: Path) -> None:
    """As if the launcher had been killed."""
    with closing(sqlite3.connect(directory / "record.db")) as database:
        database.execute("DELETE FROM events WHERE actor = 'launcher'")
        database.commit()


def test_only_two_checkpoints_are_kept(launch: Launch) -> None:
    run = launch(long("sync"))

    def whole(run: Launched) -> int:
        return sum(1 for place in (run.out / "checkpoints").glob("0*") if (place / MANIFEST).exists())

    run.wait_for(lambda run: Checkpoints(run.out).last_round() >= 3 * EVERY and whole(run) == 2)


def test_real_time_takes_no_checkpoints() -> None:
    with pytest.raises(DescriptionError, match=r'run\.checkpoint_every = 4: needs time\.mode = "virtual"'):
        validate(long("sync", time__mode="wall"))


def test_from_python_too(tmp_path: Path) -> None:
    done = run_here(description(), tmp_path / "done")
    assert pflsim.resume(str(done.directory)).summary == done.summary
