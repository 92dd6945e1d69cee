"""`pflsim watch`: what its record tells of a run by now, on one line, on a terminal, and until it is over."""

import os
import pty
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from launch import watch
from launch.watch import Watched, Watcher, line, processes_of, view
from pflsim.record.database import Reader, Record
from pflsim.record.snapshot import Slow, Snapshot, snapshot
from tests.launching import ROOT, description
from tests.recorded import AMONG, PEERS, SMALL, run_into

NOW = Snapshot(3, 2 * 10**9, 6.0, [0.25, 0.5, 0.75], {"up": 1_500_000, "down": 3_000_000, "peer": 0},
               {"c000": "computing", "c001": "waiting", "c002": "offline"}, [Slow("c001", 3e8, 2)], 0, "")  # fmt: skip
WATCHED = Watched("fedavg", 12, NOW, 1000.0, {"server": 3 * 10**8, "host": 2 * 10**8}, [10**8, 5 * 10**8])


def message(end: str, sender: str, receiver: str, kind: str, number: int, at_ns: int) -> tuple[Any, ...]:
    round = [number] if end == "sent" else []
    return (end, sender, receiver, kind, "data", number, *round, 100, 10, 7, at_ns)


def test_what_each_client_is_at_goes_by_its_last_question_and_answer(tmp_path: Path) -> None:
    facts: list[tuple[Any, ...]] = [("events", f"c00{one}", "joined", "", 0, 0.0) for one in range(6)]
    facts += [message("sent", "server", f"c00{one}", "WORK", one, 10) for one in range(1, 5)]
    facts += [
        message("sent", "c002", "server", "RESULT", 1, 50),  # under way
        message("sent", "c003", "server", "RESULT", 1, 50),
        message("received", "c003", "server", "RESULT", 1, 60),
        ("spans", "c003", "compute", 20, 50, 1),
        ("spans", "c002", "compute", 10, 50, 1),
        ("spans", "c004", "offline", 15, 30, 1),
        ("events", "c005", "died", "", 0, 0.0),
        ("rounds", 1, 0, 70, 0.5, "[1, 2, 3, 4]", 1, 2, 0),
        ("evaluations", 1, 70, 0, "global", "test", 6, 10, 0.1),
        ("evaluations", 1, 70, 1, "global", "test", 8, 10, 0.1),
        ("evaluations", 2, 90, 0, "global", "test", 9, 10, 0.1),  # c001 has not been heard yet
    ]
    with Record(tmp_path / "record.db") as record:
        record.write(facts)
    with Reader(tmp_path / "record.db") as reader:
        found = snapshot(reader)
    assert found.states == {"c000": "waiting", "c001": "computing", "c002": "sending", "c003": "waiting",
                            "c004": "offline", "c005": "dead"}  # fmt: skip
    assert (found.rounds, found.simulated_ns, found.wall_s, found.rejected, found.ended) == (1, 70, 0.5, 2, "")
    assert list(found.accuracies) == [0.7]
    assert found.payload_bytes == {"up": 200, "down": 400, "peer": 0}
    assert list(found.slowest) == [Slow("c002", 40.0, 1), Slow("c003", 30.0, 1)]


def test_a_run_that_goes_on_without_who_was_lost_is_told_as_it_is(tmp_path: Path) -> None:
    facts: list[tuple[Any, ...]] = [("events", f"c00{one}", "joined", "", 0, 0.0) for one in range(2)]
    facts += [("evaluations", 1, 70, one, "global", "test", 6, 10, 0.1) for one in range(2)]
    facts += [
        ("events", "c001", "lost", "was killed", 80, 0.0),
        ("evaluations", 2, 90, 0, "global", "test", 9, 10, 0.1),
    ]
    facts += [("events", "launcher", what, "", 0, 0.0) for what in ("restarted", "refused")]
    with Record(tmp_path / "record.db") as record:
        record.write(facts)
    with Reader(tmp_path / "record.db") as reader:
        found = snapshot(reader)
    assert found.states == {"c000": "waiting", "c001": "dead"}
    assert list(found.accuracies) == [0.6, 0.9]
    assert found.ended == "", "what the launcher tells besides ends no run"


def test_a_run_among_peers_is_told_too(tmp_path: Path) -> None:
    run_into(tmp_path / "run", description(**(AMONG | PEERS["sync"])))
    with Reader(tmp_path / "run" / "record.db") as reader:
        found = snapshot(reader)
    assert len(found.states) == 6 and found.payload_bytes["peer"] > 0 and found.ended == "done"
    assert len(found.accuracies) == 1 and 0 < found.accuracies[0] <= 1


def test_a_line_tells_what_there_is_to_tell() -> None:
    assert line(WATCHED) == (
        "fedavg  round 3/12  accuracy 75.0 %  simulated 2.00 s  ↑1.50 MB ↓3.00 MB  1.00 kB/s  "
        "memory 500 MB in 2 processes  1 computing  1 waiting  1 offline"
    )
    assert WATCHED.remaining_s == 18.0


@pytest.mark.parametrize(("width", "height", "clients"), [(80, 24, 3), (80, 10, 500), (40, 24, 500), (200, 50, 500)])
def test_the_view_fits_every_terminal(width: int, height: int, clients: int) -> None:
    states = {f"c{number:03d}": "computing" for number in range(clients)}
    console = Console(width=width, height=height, record=True, file=StringIO())
    console.print(view(replace(WATCHED, now=replace(NOW, states=states)), width, height))
    shown = console.export_text().splitlines()
    assert len(shown) <= height and max(map(len, shown)) <= width
    assert f"{clients} clients:" in "\n".join(shown) and "q leaves" in shown[-1]


def test_memory_is_told_over_time_and_for_the_largest_processes() -> None:
    console = Console(width=80, height=24, record=True, file=StringIO())
    console.print(view(WATCHED, 80, 24))
    assert "memory over time ▂█  most: server 300 MB, host 200 MB" in console.export_text().splitlines()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this kernel does not tell what processes print into")
def test_memory_is_asked_every_few_seconds_and_its_course_kept(
    unfinished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = iter([{7: "server"}, {7: "server", 8: "c000"}])
    monkeypatch.setattr(watch, "processes_of", lambda _: next(weights))
    monkeypatch.setattr(watch, "pss_bytes", lambda pid: 100 * pid)
    now_s = 0.0
    watcher = Watcher(unfinished, lambda: now_s)
    assert list(watcher.look().memory_course) == [700]
    now_s = watch.MEMORY_EVERY_S - 0.1
    assert watcher.look().memory_bytes == {"server": 700}
    now_s = watch.MEMORY_EVERY_S
    found = watcher.look()
    assert found.memory_bytes == {"server": 700, "c000": 800} and list(found.memory_course) == [700, 1500]


def test_nobody_is_there_before_the_first_fact() -> None:
    nothing = Snapshot(0, 0, 0.0, [], {"up": 0, "down": 0, "peer": 0}, {}, [], 0, "")
    assert line(Watched("fedavg", 12, nothing)) == "fedavg  round 0/12  simulated 0 ns  nothing sent  0 B/s"
    assert Watched("fedavg", 12, nothing).remaining_s is None


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    run_into(tmp_path / "run", description(**SMALL))
    (tmp_path / "run" / "logs").mkdir()
    with sqlite3.connect(tmp_path / "run" / "record.db") as database:
        database.execute("DELETE FROM events WHERE actor = 'launcher'")
    return tmp_path / "run"


def test_a_finished_run_is_told_once_and_its_record_stays_as_it_was(tmp_path: Path, capsys: Any) -> None:
    run_into(tmp_path / "run", description(**SMALL))
    record = tmp_path / "run" / "record.db"
    (tmp_path / "run" / "summary.json").write_text('{"memory": {"peak_pss_bytes": 3000000}}')
    before = sha256(record.read_bytes()).digest()
    watch.watch(tmp_path / "run")
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("fedavg  round 4/4  accuracy") and last == "this run is over: done"
    assert "/s in the mean  memory up to 3.00 MB" in first
    assert sha256(record.read_bytes()).digest() == before
    assert {path.name for path in record.parent.iterdir()} == {"record.db", "run.toml", "summary.json"}


def test_a_run_of_which_nothing_is_left_is_watched_no_longer(unfinished: Path) -> None:
    now_s = 0.0
    watcher = Watcher(unfinished, lambda: now_s)
    assert not (watcher.look(), watcher.is_over)[1]
    now_s = watch.GONE_S + 1
    assert (watcher.look(), watcher.is_over)[1]


def test_looking_costs_no_more_than_a_small_part_of_the_time(unfinished: Path) -> None:
    times = iter([0.0, 0.0, 2.0])  # it took two seconds to read
    watcher = Watcher(unfinished, lambda: next(times))
    watcher.look()
    assert watcher.pause_s == 2.0 * watch.PAUSE_PER_COST


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this kernel does not tell what processes print into")
def test_the_processes_of_a_run_are_those_that_print_into_its_logs(unfinished: Path) -> None:
    with (unfinished / "logs" / "c000.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=log)
    try:
        assert processes_of(unfinished) == {process.pid: "c000"}
    finally:
        process.communicate(b"\n")
    assert processes_of(unfinished) == {}


def test_q_leaves_a_live_view_of_a_run_that_goes_on(unfinished: Path) -> None:
    here, there = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    command = [sys.executable, "-m", "launch.cli", "watch", str(unfinished)]
    process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, cwd=ROOT, env=environment)
    os.close(there)
    try:
        shown = b"".join(_until(here, b"q leaves"))
        os.write(here, b"q")
        assert process.wait(8) == 0
    finally:
        process.kill()
        os.close(here)
    assert "round 4/4" in shown.decode() and "6 clients:" in shown.decode()


def _until(descriptor: int, wanted: bytes) -> Iterator[bytes]:
    """What is printed until `wanted` is."""
    seen, deadline_s = b"", time.monotonic() + 30
    with suppress(OSError):
        while wanted not in seen and time.monotonic() < deadline_s:
            piece = os.read(descriptor, 4096)
            seen += piece
            yield piece
