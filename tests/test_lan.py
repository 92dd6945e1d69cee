"""Runs over several machines: the same bits, and whoever is refused, killed or lost is named, and nothing is left."""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch.token import Token
from nodes.curve import Keys
from tests.launching import description
from tests.machines import Machines, machines, ports, run_token, throw
from tests.test_failures import FAILED, INTERRUPTED, accident, endless, runs
from tests.test_peers import expected, peers

pytestmark = pytest.mark.timeout(180)

WRONG = 2
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
FEDBUFF = {"kind": "fedbuff", "concurrency": 3, "buffer": 2}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Machines]:
    """`lab.start(tables, hosts)` starts `pflsim run --listen`, `lab.join(name)` a `pflsim host`."""
    yield from machines(tmp_path)


def digests(lab: Machines) -> tuple[str, str]:
    summary = json.loads((lab.run.out / "summary.json").read_text())
    return summary["digest"], summary["trace_digest"]


def finish(lab: Machines) -> None:
    assert lab.run.finish(120) == 0, lab.run.stderr
    assert [host.finish(20) for host in lab.hosts] == [0] * len(lab.hosts)
    assert lab.run.nothing_left()
    assert lab.run.rows("events", what="refused") == []
    assert lab.run.rows("dropped") == []


def test_a_run_over_two_hosts_gives_the_bits_of_one_machine_and_a_complete_record(lab: Machines) -> None:
    tables = description()
    lab.start(tables, 2)
    lab.join("pc1", "--clients", "3")
    lab.join("pc2")
    finish(lab)
    assert digests(lab) == expected(tables)
    summary = json.loads((lab.run.out / "summary.json").read_text())
    assert summary["hosts"] == {"pc1": 3, "pc2": 1}
    assert len(lab.run.rows("rounds")) == 3
    assert {row["client"] for row in lab.run.rows("evaluations")} == {0, 1, 2, 3}
    assert all(0 <= row["wall_s"] < 180 for row in lab.run.rows("events")), "on the launcher's clock"
    logs = [sorted(log.stem for log in host.logs.glob("c*.log")) for host in lab.hosts]
    assert list(map(len, logs)) == [3, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tables", "hosts", "more"),
    [
        (description(schedule=FEDBUFF), 3, ()),
        (peers("sync"), 3, ()),
        (peers("pairs"), 2, ("--local-clients", "2")),
        (peers("sync", run__clients_per_process=2), 2, ("--insecure",)),
    ],
    ids=["fedbuff", "dfedu on a ring", "pairs, some of them here", "without keys"],
)
def test_so_do_other_schedules_and_peers(
    tables: dict[str, Any], hosts: int, more: tuple[str, ...], lab: Machines
) -> None:
    lab.start(tables, hosts, *more)
    for number in range(hosts):
        lab.join(f"pc{number}")
    finish(lab)
    assert digests(lab) == expected(tables)


@pytest.mark.slow
def test_under_the_wall_clock_the_models_are_the_same(lab: Machines) -> None:
    tables = description(devices__flops_per_second=1e9)
    lab.start(tables | {"time": {"mode": "wall"}}, 2)
    lab.join("pc1")
    lab.join("pc2")
    finish(lab)
    assert digests(lab)[0] == expected(tables)[0]


def write_data(folder: Path, seed: int) -> str:
    """Some data of one's own; of other seeds, only the features differ. Where it lies."""
    folder.mkdir()
    random = np.random.default_rng(seed)
    np.savez(folder / "own.npz", x=random.normal(size=(80, 4)).astype(np.float32), y=np.arange(80) % 2)
    return str(folder)


@pytest.mark.slow
def test_who_cannot_take_part_is_told_why_and_the_launcher_goes_on_waiting(
    lab: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version, no data, other data, another run, another key, random bytes; the last who comes may join."""
    monkeypatch.setenv("PFLSIM_DATA", write_data(tmp_path / "data", 1))
    lab.start(description(data={"name": "npz", "file": "own.npz"}, run__rounds=1), 1)
    real = Token.read(run_token(lab.run))
    other_run = Token(real.addresses, bytes(8), real.launcher, real.joining)
    other_key = Token(real.addresses, real.run_id, real.launcher, Keys.new().secret)
    other_launcher = Token(real.addresses, real.run_id, Keys.new().public, real.joining)
    refused = [
        (lab.join("old", module="tests.other_version"), FAILED, "refuses this host: it has pflsim 9.9.9, the launcher"),
        (lab.join("other", token=str(other_run)), FAILED, "its token belongs to another run"),
        (lab.join("locked", token=str(other_key)), FAILED, "who is there has other keys"),
        (lab.join("elsewhere", token=str(other_launcher)), FAILED, "who is there has other keys"),
        (lab.join("mistyped", token=str(real)[:-3] + "xyz"), WRONG, "--join = 'pfl1"),
    ]
    for port in ports(lab.run):
        throw(port, random.Random(1).randbytes(500))
    for host, code, words in refused:
        assert host.finish(60) == code, host.said
        assert words in host.said
    without = lab.join("without", PFLSIM_DATA=str(tmp_path))
    assert without.finish(60) == WRONG, without.said
    assert "data.file = 'own.npz': there is no such file in the data directory" in without.said
    others = lab.join("others", PFLSIM_DATA=write_data(tmp_path / "more", 2))
    assert others.finish(60) == FAILED, others.said
    assert "refuses this host: it has data " in others.said
    lab.join("fine")
    assert lab.run.finish(90) == 0, lab.run.stderr
    told = " | ".join(row["detail"] for row in lab.run.rows("events", what="refused"))
    for words in (
        "refused old: it has pflsim 9.9.9",
        "refused other: its token belongs to another run",
        "refused without: data.file = 'own.npz': there is no such file",
        "refused others: it has data ",
        "127.0.0.1 with an unknown key at the launcher",
    ):
        assert words in told
    assert told_of("launcher", told) and told_of("recorder", told)


def told_of(door: str, told: str) -> bool:
    """Of strangers: at once, or, where the library did not say which connection it was, counted at the end."""
    return f" without a key at the {door}" in told or f"connections to the {door} never showed a key" in told


def test_too_few_hosts_end_the_run_with_how_many_have_joined(lab: Machines) -> None:
    lab.start(description(), 2, "--await-s", "1")
    assert lab.run.finish(60) == FAILED
    assert "launcher: 0 of 2 hosts have joined within 1 s" in lab.run.stderr
    assert lab.run.nothing_left()


def start_endless(lab: Machines) -> None:
    """A run over two hosts that is in the middle of its work."""
    lab.start(endless(), 2)
    for name in ("pc1", "pc2"):
        lab.join(name)
    lab.run.wait_for(runs, within_s=90)


def ended(lab: Machines, who: str) -> str:
    """What the launcher said of a run that failed; nothing is left of it on any host."""
    assert lab.run.finish(30) == FAILED, lab.run.stderr
    for host in lab.hosts:
        host.finish(15)
    assert lab.run.nothing_left()
    assert lab.run.rows("events", what="failed") != []
    assert f"pflsim: the run failed: {who}: " in lab.run.stderr
    return lab.run.stderr


@pytest.mark.slow
def test_whatever_is_thrown_at_its_ports_a_run_goes_on_and_a_host_that_is_killed_is_named(lab: Machines) -> None:
    start_endless(lab)
    open_ports = ports(lab.run)
    assert len(open_ports) == 3, "the launcher's, the recorder's and the server's"
    chance = random.Random(7)
    for port in open_ports:
        for mechanism in (b"CURVE", b"NULL", b"PLAIN"):
            greeting = GREETING + mechanism.ljust(20, b"\0") + bytes(32)
            for data in (greeting, greeting[: chance.randrange(64)], greeting + b"\x04\x06" + chance.randbytes(6)):
                throw(port, data)
        throw(port, chance.randbytes(2000))
        throw(port, b"\xff" * 70 + chance.randbytes(200))
    before = len(lab.run.rows("rounds"))
    lab.run.wait_for(lambda run: len(run.rows("rounds")) > before + 2)
    lab.hosts[1].process.kill()
    assert "pc2: the connection to it has ended" in ended(lab, "pc2")
    assert "the run was failed" in lab.hosts[0].said
    for who, door in (("server", "server"), ("launcher", "launcher"), ("launcher", "recorder")):
        told = " | ".join(row["detail"] for row in lab.run.rows("events", what="refused", actor=who))
        assert told_of(door, told), door


@pytest.mark.slow
def test_a_client_that_is_killed_on_a_host_is_named_with_the_host_and_its_log(lab: Machines) -> None:
    start_endless(lab)
    os.kill(lab.hosts[1].pid_of("c002"), signal.SIGKILL)
    said = ended(lab, "c002")
    assert "was killed by SIGKILL on pc2" in said
    assert f"(all of it: {lab.hosts[1].logs}/c002.log on pc2)" in said


@pytest.mark.slow
def test_the_last_words_of_a_client_on_a_host_are_told_by_the_launcher(lab: Machines) -> None:
    lab.start(accident("client raises"), 1)
    lab.join("pc1")
    said = ended(lab, "c002")
    assert "ended with exit code 1 on pc1: " in said
    assert "ZeroDivisionError: the client's accident" in said


@pytest.mark.slow
def test_ctrl_c_at_the_launcher_ends_all_hosts(lab: Machines) -> None:
    start_endless(lab)
    os.killpg(lab.run.process.pid, signal.SIGINT)
    assert lab.run.finish(20) == INTERRUPTED
    assert [host.finish(15) for host in lab.hosts] == [FAILED, FAILED]
    assert lab.run.nothing_left()
    assert "the run was interrupted" in lab.hosts[0].said


@pytest.mark.slow
def test_ctrl_c_at_a_host_ends_the_run_and_names_it(lab: Machines) -> None:
    start_endless(lab)
    os.killpg(lab.hosts[0].process.pid, signal.SIGINT)
    assert "pc1: was interrupted there" in ended(lab, "pc1")
    assert lab.hosts[0].process.returncode == INTERRUPTED


@pytest.mark.slow
def test_hosts_whose_launcher_vanishes_end_what_runs_there(lab: Machines) -> None:
    start_endless(lab)
    lab.run.process.kill()
    assert [host.finish(15) for host in lab.hosts] == [FAILED, FAILED]
    assert lab.run.nothing_left()
    assert "launcher: the connection to it has ended" in lab.hosts[0].said


@pytest.mark.slow
def test_a_host_that_says_nothing_any_more_is_lost(lab: Machines) -> None:
    """As when a cable is pulled: no connection ends, but nothing comes."""
    start_endless(lab)
    lab.hosts[1].process.send_signal(signal.SIGSTOP)
    try:
        assert lab.run.finish(30) == FAILED
        assert "pc2: has not been heard of for" in lab.run.stderr
    finally:
        lab.hosts[1].process.send_signal(signal.SIGCONT)
    lab.hosts[1].finish(15)
    assert lab.run.nothing_left()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "udp://x"), "--listen = 'udp://x': must be tcp://ADDRESS:PORT"),
        (("--listen", "tcp://127.0.0.1:0", "--local-clients", "9"), "--local-clients = 9: must be 0 to 4"),
        (("--await-hosts", "2"), "--await-hosts = 2: needs --listen"),
        (("--insecure",), "--insecure = True: needs --listen"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], words: str, lab: Machines) -> None:
    lab.run = lab._launch(description(), *arguments)
    assert lab.run.finish(30) == WRONG
    assert words in lab.run.stderr
