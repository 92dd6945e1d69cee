"""Hosts that are started for the user, by a real ssh from a real sshd, checked and measured; and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w

from launch import control
from launch.checkpoints import Checkpoints
from launch.hosts.answering import MOST_BYTES as LONGEST_ECHO_BYTES
from launch.hosts.beginning import BEGINNING
from launch.hosts.calibrating import Client, Measured, clients_of
from launch.hosts.hostfile import HostFile, HostTable, read_hosts
from launch.hosts.links import Link, measured_link
from launch.hosts.starting import SshHosts
from launch.shares import Capacity
from launch.token import Token
from pflsim.errors import DescriptionError, RunFailed
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.links import Links, wire_bytes
from tests.launching import ROOT, Launched, description, happens, launcher
from tests.secure_shell import secure_shell
from tests.test_failures import FAILED, INTERRUPTED, endless, runs
from tests.test_peers import expected
from tests.test_resume import EVERY, long

pytestmark = pytest.mark.timeout(180)

WRONG = 2
PLAIN = {"environment": {"PYTHONPATH": ""}}
OTHER_VERSION = {"pflsim": [sys.executable, "-m", "tests.other_version"], "directory": str(ROOT)}


@pytest.fixture(scope="module")
def ssh() -> Iterator[list[str]]:
    yield from secure_shell()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Any]:
    """`launch(tables, "--hosts", ...)` starts `pflsim run`, as in test_lan."""
    yield from launcher(tmp_path)


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has no pflsim."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    return str(place / "bin" / "python")


def hosts_file(place: Path, ssh: list[str], *hosts: dict[str, Any], **more: Any) -> Path:
    """A hosts.toml whose hosts all have this source and this Python, unless they say otherwise."""
    defaults = {"python": sys.executable, "directory": str(place), "environment": {"PYTHONPATH": str(ROOT)}}
    tables = {"listen": "tcp://127.0.0.1:0", "ssh": ssh, "defaults": defaults, "host": list(hosts)}
    file = place / "hosts.toml"
    file.write_text(tomli_w.dumps(tables | more))
    return file


# the file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "host is required"),
        ('[[host]]\nname = "a"\npyton = "x"', "host \"a\".pyton = 'x': unknown key; known are address, clients"),
        ('[[host]]\nname = "a"\n[[host]]\nname = "a"', "host.name = 'a': is the name of two hosts"),
        ('[[host]]\nname = "a"\naddress = "-oProxyCommand=x"', 'host "a".address'),
        ('[[host]]\nname = "-a"', 'host "-a".name'),
        ('[[host]]\nname = "a"\nclients = 0', 'host "a".clients = 0: input should be greater than 0'),
        ('[[host]]\nname = "a"\npython = "p"\npflsim = "q"', 'host "a".python, host "a".pflsim'),
        ('listen = "5555"\n[[host]]\nname = "a"', "listen = '5555': must be tcp://ADDRESS:PORT"),
        ("[[host]", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_the_host_and_the_key(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(text)
    with pytest.raises(DescriptionError) as refused:
        read_hosts(tmp_path / "hosts.toml")
    assert words in str(refused.value)


def test_the_example_can_be_read_and_its_hosts_have_the_defaults_that_they_do_not_replace() -> None:
    file = read_hosts(ROOT / "launch" / "hosts.toml")
    assert [(one.name, one.directory, one.program) for one in file.hosts] == [
        ("lab1", "pflsim", ".venv/bin/python"),
        ("lab2", "pflsim", ".venv/bin/python"),
        ("big", "/srv/pflsim", ".venv/bin/python"),
    ]
    command = file.command(file.hosts[1], "host")
    assert command[0] == "ssh" and "BatchMode=yes" in command and command[-3:-1] == ["--", "someone@192.0.2.12"]


def test_whatever_stands_in_the_file_reaches_the_host_as_it_stands_there(tmp_path: Path) -> None:
    odd = """it's $HOME "and"; `more`"""
    (tmp_path / odd).mkdir()
    show = "import os, sys; print(os.getcwd(), os.environ['ODD'], os.environ['PFLSIM_DATA'], sys.argv[1:], sep='|')"
    host = HostTable(
        name="a",
        pflsim=(sys.executable, "-c", show),
        directory=str(tmp_path / odd),
        data="~/some data",
        environment={"ODD": odd},
    )
    environment = {"HOME": "/home/me", "PATH": os.environ["PATH"]}
    command = ["sh", "-c", host.script("host", "--name", odd)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert said.strip() == f"{tmp_path / odd}|{odd}|/home/me/some data|{['host', '--name', odd]}"


def test_the_first_line_of_python_begins_pflsim_where_it_is(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", BEGINNING, "--version"]
    alone = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    assert "version" in subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--hosts", "x", "--cluster", "y"), "--hosts, --cluster = ('x', 'y'): give one of the two"),
        (("--hosts", "nowhere.toml"), "--hosts = 'nowhere.toml': cannot be read"),
        (("--hosts", "launch/hosts.toml", "--await-hosts", "2"), "--await-hosts = 2: is not needed with --hosts"),
        (("--hosts", "launch/hosts.toml", "--token-file", "t"), "--token-file = 't': is for hosts that are started"),
        (("--token-file", "t"), "--token-file = 't': needs --listen"),
        (("--cluster", "127.0.0.1:8786"), "--cluster = '127.0.0.1:8786': must be dask://HOST:PORT"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(tomli_w.dumps(description()))
    from launch.cli import guarded, pflsim

    def command() -> None:
        pflsim.main(["run", str(tmp_path / "run.toml"), *arguments], standalone_mode=False)

    assert guarded(command) == WRONG
    assert words in capsys.readouterr().err


# by ssh


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ({"name": "nobody"}, "cannot be reached by ssh: ssh: connect to host 127.0.0.1 port "),
        ({"name": "asks"}, "cannot be reached by ssh: "),
        ({"name": "lab", "directory": "/nowhere"}, "has no directory /nowhere"),
        ({"name": "lab", "python": "pythoff"}, "has no pythoff"),
        ({"name": "lab", "python": "BARE"} | PLAIN, "No module named 'launch'"),
        ({"name": "lab", "pflsim": ["false"]}, "ended before it had joined, with exit code 1"),
    ],
    ids=["refused", "would ask", "no directory", "no python", "no pflsim", "fails"],
)
def test_a_host_that_cannot_be_started_is_named_with_the_reason(
    host: dict[str, Any], why: str, ssh: list[str], bare: str, tmp_path: Path
) -> None:
    host = {key: bare if value == "BARE" else value for key, value in host.items()}
    ours, lines = SshHosts.read(hosts_file(tmp_path, ssh, host)), list[str]()
    ours.start(Token(("127.0.0.1:9",), b"8 bytes."))
    try:
        with pytest.raises(RunFailed) as failed:
            while True:
                ours.tend((), lines.append)
                time.sleep(0.02)
    finally:
        ours.end(lines.append)
    assert failed.value.actor == host["name"]
    assert why in failed.value.reason, lines
    assert all(line.startswith(f"[{host['name']}] ") for line in lines)


def test_no_command_line_shows_the_token(ssh: list[str], tmp_path: Path) -> None:
    hangs = {"name": "lab", "pflsim": [sys.executable, "-c", "import sys; sys.stdin.readline(); sys.stdin.read()"]}
    ours, token = SshHosts.read(hosts_file(tmp_path, ssh, hangs)), str(Token(("127.0.0.1:9",), b"8 bytes."))
    ours.start(Token.read(token))
    shown: list[list[str]] = []

    def it_runs() -> bool:
        shown[:] = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]
        return any(words[:1] == [sys.executable] and words[-1] == "lab" for words in shown)

    try:
        assert happens(it_runs, 10)
    finally:
        began_s = time.monotonic()
        ours.end(print)
    assert any("BatchMode=yes" in words for words in shown)
    assert not any(token in " ".join(words) for words in shown)
    assert time.monotonic() - began_s < 2.5, "it ends as soon as its input does"


def digests(out: Path) -> tuple[str, str]:
    summary = json.loads((out / "summary.json").read_text())
    return summary["digest"], summary["trace_digest"]


@pytest.mark.slow
def test_a_run_over_the_hosts_of_a_file_gives_the_bits_of_one_machine_for_each_of_its_methods(
    launch: Any, ssh: list[str], tmp_path: Path
) -> None:
    file = hosts_file(tmp_path, ssh, {"name": "lab1", "clients": 3}, {"name": "lab2"})
    tables = description()
    run = launch(tables | {"beside": [{"name": "local"}]}, "--hosts", str(file))
    assert run.finish(150) == 0, run.stderr
    assert run.nothing_left()
    assert digests(run.out) == expected(tables)
    beside = run.out.with_name("out-local")
    assert digests(beside) == expected(description(algorithm__name="local"))
    for out in (run.out, beside):
        assert json.loads((out / "summary.json").read_text())["hosts"] == {"lab1": 3, "lab2": 1}
    assert "starting 2 hosts by ssh: lab1, lab2" in run.stderr
    assert run.stderr.count("[lab1] joined the run of 127.0.0.1 as lab1") == 2
    assert "[lab2] the run is done" in run.stderr


def start_endless(launch: Any, ssh: list[str], place: Path) -> Launched:
    run: Launched = launch(endless(), "--hosts", str(hosts_file(place, ssh, {"name": "lab1"}, {"name": "lab2"})))
    run.wait_for(runs, within_s=90)
    return run


@pytest.mark.slow
def test_ctrl_c_ends_the_run_on_all_hosts(launch: Any, ssh: list[str], tmp_path: Path) -> None:
    run = start_endless(launch, ssh, tmp_path)
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.finish(20) == INTERRUPTED
    assert run.nothing_left()


@pytest.mark.slow
def test_nothing_is_left_on_the_hosts_of_a_launcher_that_is_killed(launch: Any, ssh: list[str], tmp_path: Path) -> None:
    run = start_endless(launch, ssh, tmp_path)
    assert len(run.left()) > 8, "launcher, two ssh, three hosts, server and clients"
    run.process.kill()
    assert run.nothing_left(15), run.left()


@pytest.mark.slow
def test_nor_of_one_that_is_killed_while_it_starts_them(launch: Any, ssh: list[str], tmp_path: Path) -> None:
    run = launch(description(), "--hosts", str(hosts_file(tmp_path, ssh, {"name": "lab1"}, {"name": "lab2"})))
    run.wait_for(lambda run: "starting 2 hosts" in run.stderr, within_s=60)
    run.process.kill()
    assert run.nothing_left(15), run.left()


@pytest.mark.slow
def test_a_host_whose_connection_is_cut_ends_what_runs_there_and_is_named(
    launch: Any, ssh: list[str], tmp_path: Path
) -> None:
    run = start_endless(launch, ssh, tmp_path)
    (connection,) = [one for one in run.left() if one.name() == "ssh" and "lab2" in one.cmdline()]
    connection.kill()
    assert run.finish(30) == FAILED
    assert "the run failed: lab2: launcher: what has started this host is gone" in run.stderr
    assert run.nothing_left()


@pytest.mark.slow
def test_a_run_whose_hosts_are_all_lost_starts_them_again_and_goes_on_from_its_checkpoint(
    launch: Any, ssh: list[str], tmp_path: Path
) -> None:
    tables = long("sync", run__on_loss="restart")
    run = launch(tables, "--hosts", str(hosts_file(tmp_path, ssh, {"name": "lab1"})))
    run.wait_for(lambda run: Checkpoints(run.out).last_round() >= EVERY, within_s=60)
    (connection,) = [one for one in run.left() if one.name() == "ssh" and "lab1" in one.cmdline()]
    connection.kill()
    assert run.finish(90) == 0, run.stderr
    assert run.nothing_left()
    assert digests(run.out) == expected(long("sync"))
    assert run.stderr.count("starting 1 host by ssh: lab1") == 2
    assert run.stderr.count("[lab1] joined the run of 127.0.0.1 as lab1") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"name": "nobody"}, "the run failed: nobody: cannot be reached by ssh: ssh: connect to host 127.0.0.1"),
        ({"name": "lab-old"} | OTHER_VERSION, "refused lab-old: it has pflsim 9.9.9, the launcher has "),
    ],
    ids=["unreachable", "other version"],
)
def test_a_run_whose_host_cannot_take_part_fails_and_leaves_nothing(
    bad: dict[str, Any], words: str, launch: Any, ssh: list[str], tmp_path: Path
) -> None:
    run = launch(description(), "--hosts", str(hosts_file(tmp_path, ssh, {"name": "lab1"}, bad)))
    assert run.finish(60) == FAILED, run.stderr
    assert words in run.stderr
    assert f"the run failed: {bad['name']}: " in run.stderr
    assert run.nothing_left()


def command_line(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What `pflsim ARGUMENTS` says and with what it ends."""
    given = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"} | environment
    command = [sys.executable, "-m", "launch.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_the_check_says_of_each_host_what_it_has_and_of_the_others_why_not(
    ssh: list[str], bare: str, tmp_path: Path
) -> None:
    (tmp_path / "run.toml").write_text(tomli_w.dumps(description(data={"name": "npz", "file": "own.npz"})))
    from tests.test_lan import write_data

    good, other = write_data(tmp_path / "data", 1), write_data(tmp_path / "more", 2)
    file = hosts_file(
        tmp_path,
        ssh,
        {"name": "lab1", "data": good},
        {"name": "lab2", "data": other},
        {"name": "lab3", "data": str(tmp_path)},
        {"name": "lab4", "python": bare} | PLAIN,
        {"name": "lab5", "data": good} | OTHER_VERSION,
        {"name": "nobody"},
    )
    checked = command_line("hosts", "check", str(file), "--run", str(tmp_path / "run.toml"), PFLSIM_DATA=good)
    assert checked.returncode == FAILED, checked.stderr
    rows = {line.split()[0]: line.split() for line in checked.stdout.splitlines() if line.strip()}
    assert [rows[name][1] for name in ("lab1", "lab2", "lab3", "lab4", "lab5", "nobody")] == ["ok", *["no"] * 5], (
        checked.stdout
    )
    assert len(rows["lab1"]) == 12 and all(float(number) >= 0 for number in rows["lab1"][-3:])
    assert abs(float(rows["lab1"][8])) < 0.1, "one clock"
    said = " ".join(checked.stdout.split())
    for words in (
        "lab2: has data ",
        "lab3: data.file = 'own.npz': there is no such file",
        f"lab4: cannot run pflsim with its {bare}: No module named 'launch'",
        "lab5: has pflsim 9.9.9, and this machine ",
        "nobody: cannot be reached by ssh: ",
    ):
        assert words in said, checked.stdout
    assert max(map(len, checked.stdout.splitlines()[:8])) <= 80


def test_hosts_that_differ_are_not_measured(ssh: list[str], tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(tomli_w.dumps(description()))
    file = hosts_file(tmp_path, ssh, {"name": "lab-old"} | OTHER_VERSION)
    lab = tmp_path / "lab"
    tried = command_line("hosts", "calibrate", str(file), "--run", str(tmp_path / "run.toml"), "--out", str(lab))
    assert (tried.returncode, lab.exists()) == (FAILED, False)
    assert "lab-old: has pflsim 9.9.9, and this machine " in tried.stderr


@pytest.mark.slow
def test_a_study_can_name_what_was_measured_on_the_hosts(ssh: list[str], tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(tomli_w.dumps(description()))
    file = hosts_file(tmp_path, ssh, {"name": "lab1", "clients": 3}, {"name": "lab2"})
    lab = tmp_path / "lab"
    done = command_line("hosts", "calibrate", str(file), "--run", str(tmp_path / "run.toml"), "--out", str(lab))
    assert done.returncode == 0, done.stderr
    assert "3 clients on" in done.stdout and "lab.toml" in done.stdout
    tables = tomllib.loads((lab / "lab.toml").read_text())
    study = Study(validate(description() | tables), b"8 bytes.")
    speeds = [study.devices.device(name).flops_per_second for name in study.names]
    assert len(set(speeds[:3])) == 1 and all(1e6 < speed < 1e13 for speed in speeds)
    assert [study.devices.speed_class(name) for name in study.names] == ["lab1"] * 3 + ["lab2"]
    links = Links(tables["links"], ("server", *study.names))
    assert 0 < links.latency_ns("c000", "server") < 50_000_000
    assert links.latency_ns("c000", "c003") == pytest.approx(
        links.latency_ns("c000", "server") + links.latency_ns("server", "c003"), abs=2
    )


def test_a_link_is_what_the_times_of_its_transfers_say() -> None:
    def ask(data: bytes, wanted: int) -> tuple[float, int]:
        line = wire_bytes([len(data)]) / 12.5e6 + wire_bytes([wanted]) / 2.5e6 if data or wanted else 0.0
        return 0.004 + line, time.time_ns() + 5_000_000_000

    link = measured_link(ask)
    assert link.latency_s == 0.002
    assert link.up_mbps == pytest.approx(20.0, rel=1e-3)
    assert link.down_mbps == pytest.approx(100.0, rel=1e-3)
    assert link.clock_ahead_s == pytest.approx(5.0, abs=0.1)


def test_over_a_link_that_seems_to_take_no_time_no_more_is_sent_than_a_host_takes() -> None:
    sent: list[int] = []

    def ask(data: bytes, wanted: int) -> tuple[float, int]:
        sent.append(max(len(data), wanted))
        return 1e-4, time.time_ns()

    assert measured_link(ask).latency_s == 5e-5
    assert max(sent) == LONGEST_ECHO_BYTES < control.MOST_BYTES


def test_clients_share_the_cores_and_the_connection_of_their_host() -> None:
    link = Link(0.002, 60.0, 90.0, 0.0)
    found = [Measured("b", Capacity(8, 1 << 34), link, 1e9), Measured("a", Capacity(2, 1 << 34), link, 4e9)]
    clients = clients_of(found, {"a": 3, "b": None}, validate(description()))
    assert clients == [Client("a", 4e9 * 2 / 3, 20.0, 30.0, 2.0)] * 3 + [Client("b", 1e9, 60.0, 90.0, 2.0)]


def test_hosts_of_one_file_may_be_one_machine() -> None:
    tables = {"host": [{"name": "a", "address": "lab"}, {"name": "b", "address": "lab"}]}
    file = HostFile.model_validate(tables)
    assert [file.command(one)[-2] for one in file.hosts] == ["lab", "lab"]
