"""What the system refuses, from folders to processes, is a sentence that names it, and nothing is left behind."""

import errno
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import tomli_w
import zmq

from launch import private_folder
from launch.comparison import run_all
from launch.directory import taken
from launch.host import LocalHost, how_it_ended
from launch.limits import require_what_it_takes
from launch.private_folder import PrivateFolder
from launch.progress import Progress
from launch.recorder import Recorder
from nodes.channel import Channel
from nodes.host import Host
from pflsim.errors import DescriptionError, RunFailed
from pflsim.record.database import Reader, Record
from pflsim.timing.availability import KINDS as AVAILABILITY
from pflsim.timing.faults import KINDS as FAULTS
from tests.launching import ROOT, Launched, description, launcher, run_here

pytestmark = pytest.mark.timeout(60)
FAILED, WRONG = 1, 2
Launch = Callable[..., Launched]
Shell = Callable[..., "subprocess.CompletedProcess[str]"]

ONE_ROUND = description(run__rounds=1)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`launch(tables)` starts `pflsim run`."""
    yield from launcher(tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """`shell(script)` in an empty folder, with `$PFLSIM` for the command line and `$RUN` for a run of one round."""
    (tmp_path / "described.toml").write_text(tomli_w.dumps(ONE_ROUND))
    start = "from launch.cli import main; main()"

    def run(script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        names = {"PFLSIM": f"{sys.executable} -P -c '{start}'", "RUN": f"run {tmp_path}/described.toml"}
        return subprocess.run(
            ["bash", "-c", f"pflsim() {{ {names['PFLSIM']} \"$@\"; }}; RUN='{names['RUN']}'; {script}"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
        )

    return run


# folders


def test_a_results_folder_below_a_file_is_refused(shell: Shell) -> None:
    ended = shell("pflsim $RUN --out described.toml/out")
    assert (ended.returncode, ended.stderr) == (
        WRONG,
        "pflsim: --out = 'described.toml/out': cannot be made: Not a directory\n",
    )


def test_a_results_folder_that_the_system_refuses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DescriptionError, match=r"--out = .*cannot be made: Permission denied"):
        run_all(ONE_ROUND, tmp_path / "out", quiet=True)


def test_runs_that_begin_in_the_same_second_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20300101-120000")
    names = [taken(None, "first").name for _ in range(3)]
    assert names == ["first-20300101-120000", "first-20300101-120000-2", "first-20300101-120000-3"]


def test_a_folder_that_appears_just_before_it_is_made_is_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "now")
    (tmp_path / "results" / "first-now").mkdir(parents=True)
    really = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "first-now" and really(path))
    assert taken(None, "first").name == "first-now-2"


def test_a_refused_run_leaves_no_folder_nor_those_of_the_methods_beside_it(tmp_path: Path) -> None:
    tables = description(ONE_ROUND, beside=[{"name": "local"}], algorithm={"name": "fedprox", "muu": 1})
    with pytest.raises(DescriptionError):
        run_all(tables, tmp_path / "out", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_method_beside_that_exists_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "out-local").mkdir()
    (tmp_path / "out-local" / "precious").touch()
    with pytest.raises(DescriptionError, match="out-local': exists already"):
        run_all(description(ONE_ROUND, beside=[{"name": "local"}]), tmp_path / "out", quiet=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["out-local", "precious"]


@pytest.mark.parametrize("length", [90, 200])
def test_a_long_temporary_folder_is_no_hindrance(length: int, shell: Shell, tmp_path: Path) -> None:
    place = tmp_path / ("t" * length)
    place.mkdir()
    ended = shell("pflsim $RUN --out out --quiet", TMPDIR=str(place))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(place.iterdir()) == []


def test_where_no_folder_is_short_enough_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_folder, "LONGEST_PATH_BYTES", 10)
    with pytest.raises(DescriptionError, match=r"TMPDIR = .*: its path is too long for a socket"):
        run_all(ONE_ROUND, tmp_path / "out", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_launcher_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(private_folder, "LONGEST_PATH_BYTES", 1000)
    script = (
        "import os; from launch.private_folder import PrivateFolder; folder = PrivateFolder(); os.kill(os.getpid(), 9)"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    longer = f"import launch.private_folder as p; p.LONGEST_PATH_BYTES = 1000; {script}"
    assert subprocess.run([sys.executable, "-c", longer], env=environment).returncode == -signal.SIGKILL
    (orphan,) = tmp_path.iterdir()
    first = PrivateFolder()
    assert not orphan.exists()
    second = PrivateFolder()
    assert first.path.exists(), "its launcher lives"
    first.remove()
    second.remove()
    assert list(tmp_path.iterdir()) == []


# the disk is full


def test_a_full_disk_ends_a_run_with_a_sentence_and_leaves_nothing_running(launch: Launch) -> None:
    tables = description(run__rounds=100_000, run__clients=4)
    run = launch(tables, before=("bash", "-c", 'ulimit -f 300; exec "$@"', "sh"))
    assert run.finish(within_s=40) == FAILED
    assert "Traceback" not in run.stderr
    assert "pflsim: the run failed: recorder: record.db cannot be written: disk I/O error" in run.stderr
    assert run.nothing_left()
    assert list(run.private.iterdir()) == []


# processes


def test_a_signal_without_a_name_is_a_number() -> None:
    assert how_it_ended(-9) == "was killed by SIGKILL"
    assert how_it_ended(-47) == "was killed by signal 47"


def test_a_process_that_cannot_be_forked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    here, there = Channel.pair()
    host = object.__new__(Host)
    host._channel, host._processes, host._order = there, {7: "server"}, {"start": "fork"}
    host._start([{"process": "c000"}], "logs")
    said = here.hear()
    assert said is not None and said["what"] == "failed"
    assert said["reason"].startswith(
        "cannot start c000 beside 1 processes: Resource temporarily unavailable; allow more"
    )
    here.close()
    there.close()


def test_a_host_that_says_nothing_is_given_up() -> None:
    host = object.__new__(LocalHost)
    host.channel, there = Channel.pair()
    with pytest.raises(RunFailed, match=r"host: has not built the study within 0.1 s"):
        host.hear_within(0.1, lambda: None)
    host.channel.close()
    there.close()


def test_limits_that_are_too_low_are_said_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {resource.RLIMIT_NOFILE: 64, resource.RLIMIT_NPROC: 1000}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (allowed[limit], allowed[limit]))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(DescriptionError, match=r"run.clients = 40: their 40 processes need .*share a process"):
        require_what_it_takes(40, 40)
    with pytest.raises(DescriptionError, match=r"run.clients = 40: their 1 processes need 65 .*\(ulimit -n\)$"):
        require_what_it_takes(40, 1)
    allowed = {resource.RLIMIT_NOFILE: 1000, resource.RLIMIT_NPROC: 126}
    with pytest.raises(DescriptionError, match=r"need 127 processes and threads and the system allows 126.*ulimit -u"):
        require_what_it_takes(40, 40)
    allowed[resource.RLIMIT_NPROC] = 127
    require_what_it_takes(40, 40)


def test_a_model_that_ends_the_process_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ending.py").write_text("def ending(shape, classes):\n    raise SystemExit(0)\n")
    with pytest.raises(Exception, match=r"host: could not build the study(.|\n)*SystemExit"):
        run_here(description(ONE_ROUND, model={"name": "ending:ending"}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# what is printed


def test_a_pipe_that_is_closed_early_is_no_error(shell: Shell) -> None:
    for command in ("list", "check ${RUN#run}"):
        ended = shell(f"pflsim {command} | head -1; echo ${{PIPESTATUS[0]}}")
        assert (ended.stdout.splitlines()[-1], ended.stderr) == ("0", "")


def test_a_full_standard_output_is_named(shell: Shell) -> None:
    ended = shell("pflsim list > /dev/full")
    assert (ended.returncode, ended.stderr) == (FAILED, "pflsim: standard output: No space left on device\n")


def test_what_explains_a_run_may_be_cut_short_and_says_when_it_is_too_early(tmp_path: Path, shell: Shell) -> None:
    assert shell("pflsim $RUN --out out --quiet").returncode == 0
    ended = shell("pflsim explain out | head -1; echo ${PIPESTATUS[0]}")
    assert (ended.stdout.splitlines()[-1], ended.stderr) == ("0", "")
    with sqlite3.connect(tmp_path / "out" / "record.db") as record:
        record.execute("DELETE FROM rounds")
    record.close()
    for option in ("--round 1", "--pictures"):
        ended = shell(f"pflsim explain out {option}")
        assert (ended.returncode, ended.stderr) == (FAILED, "pflsim: no round has ended yet in out\n")


def test_a_run_goes_on_when_nobody_reads_what_it_says(shell: Shell, tmp_path: Path) -> None:
    ended = shell("{ pflsim $RUN --out out --set run.rounds=30 2>&1; echo $? > code; } | head -1")
    assert ended.stderr == ""
    assert (tmp_path / "code").read_text() == "0\n"
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "done"


def test_a_run_needs_no_terminal_at_all(shell: Shell, tmp_path: Path) -> None:
    assert shell("pflsim $RUN --out out <&- >&- 2>&-").returncode == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "done"


def test_an_encoding_without_arrows_is_no_hindrance(shell: Shell) -> None:
    ended = shell("pflsim $RUN --out out", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stderr
    assert "round 1/1" in ended.stderr and "Traceback" not in ended.stderr


def test_a_file_where_the_user_works_does_not_hide_a_library(shell: Shell, tmp_path: Path) -> None:
    for name in ("random", "struct", "torch"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('this is not the library')\n")
    assert shell("pflsim $RUN --out out --quiet").returncode == 0


def test_one_part_can_be_listed_in_full(shell: Shell) -> None:
    ended = shell("pflsim list fedu")
    assert ended.returncode == 0
    assert "Laplacian of the graph" in ended.stdout and "eta, the weight of the regularisation" in ended.stdout
    for room, names in {"availability": AVAILABILITY, "fault": FAULTS}.items():
        ended = shell(f"pflsim list {room}")
        assert ended.returncode == 0
        assert [line.split('"')[1] for line in ended.stdout.splitlines() if line.startswith("kind =")] == sorted(names)
    inherited = shell("pflsim list cgpfl-heur").stdout
    assert "how far an omega goes" in inherited and "the most contexts that are tried" in inherited
    ended = shell("pflsim list fedx")
    assert ended.returncode == WRONG and "did you mean 'fedu'?" in ended.stderr


# the recorder


def test_junk_at_the_recorder_is_counted_and_dropped(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    recorder = Recorder(Record(tmp_path / "record.db"), 0.0, True, Progress(1, 1, quiet=True))
    recorder.expect(["server", "c000"])
    recorder.listen(context, f"ipc://{tmp_path}/r" if len(str(tmp_path)) < 90 else "inproc://recorder")
    stranger = context.socket(zmq.PUSH)
    stranger.connect(recorder.endpoint)
    good: list[Any] = ["events", "c000", "joined", "", 0, 1.0]
    junk: list[list[bytes]] = [
        [b""],
        [b"\xc1"],
        [b"junk", b"in", b"frames"],
        *[
            [msgpack.packb(message)]
            for message in (
                5,
                ["nobody", []],
                ["c000", 5],
                ["c000", [5]],
                ["c000", [[]]],
                ["c000", [["nothing", 1], good]],
                ["c000", [[5]]],
                ["c000", [["rounds", 1]]],
                ["c000", [["events", None, "finished", 5, "", None]]],
                ["server", [["events", "server", "finished", "no JSON", 0, 1.0]]],
                ["c000", [["measures", 1, "c000", "x", [1]]]],
                ["c000", [["rounds", 2**64 - 1, 0, 0, 0.0, "", 0, 0]]],
                ["c000", [["sent", "c000", "server", "RESULT", "data", None, 1, 1, 1, 1, 1]]],
                ["c000", [["bound", "c000", "ipc://elsewhere"]]],
            )
        ],
    ]
    for frames in junk:
        stranger.send_multipart(frames)
        assert recorder.socket.poll(2000)
        recorder.take()
    stranger.send(msgpack.packb(["c000", None]))
    assert recorder.socket.poll(2000)
    recorder.take()
    context.destroy(linger=0)
    recorder.close()
    assert recorder.said_goodbye == {"c000"} and recorder.finished is None
    with Reader(tmp_path / "record.db") as reader:
        assert len(reader.rows("dropped", receiver="recorder", reason="malformed")) == len(junk) - 2
        assert [row["what"] for row in reader.rows("events")] == ["joined", "finished"]


def test_the_record_says_who_takes_part_and_with_what(tmp_path: Path) -> None:
    result = run_here(ONE_ROUND, tmp_path / "out")
    rows = result.rows("clients")
    assert [(row["client"], row["name"]) for row in rows] == [(number, f"c00{number}") for number in range(4)]
    assert sum(row["training_samples"] + row["test_samples"] for row in rows) == 200
    assert {row["validation_samples"] for row in rows} == {0}
    assert sorted((row["device_class"], row["flops_per_second"]) for row in rows) == [("fast", 5e9)] * 3 + [
        ("slow", 5e8)
    ]
    assert all(json.loads(row["labels_json"]) == sorted(json.loads(row["labels_json"])) != [] for row in rows)
    versions = (tmp_path / "out" / "run.toml").read_text().split("[versions]")[1]
    assert "cpu_capability = " in versions and "torch = " in versions
