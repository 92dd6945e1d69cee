"""Runs over several machines that are killed and go on from a checkpoint: there, on fewer machines, or here."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.checkpoints import Checkpoints
from launch.resume import resume
from tests.launching import Launched
from tests.machines import LISTEN, Machines, machines
from tests.test_resume import EVERY, expected, long

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

SAID = ("digest", "trace_digest", "rounds", "stopped")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Machines]:
    """`lab.start(tables, hosts)` starts `pflsim run --listen`, `lab.join(name)` a `pflsim host`."""
    yield from machines(tmp_path)


def begun(lab: Machines, tables: dict[str, Any], *arguments: str, rounds: int = 2 * EVERY) -> None:
    """A run over two hosts that has come to its second checkpoint."""
    lab.start(tables, 2, *arguments)
    lab.join("pc1", "--clients", "2")
    lab.join("pc2")
    lab.run.wait_for(lambda run: Checkpoints(run.out).last_round() >= rounds, within_s=60)


def left_by_killing(lab: Machines, who: str) -> Launched:
    """What there is when the launcher, or a host, is killed; nothing of it runs any more."""
    killed = lab.run.process if who == "launcher" else lab.hosts[1].process
    killed.kill()
    lab.run.finish(30)
    for host in lab.hosts:
        host.finish(20)
    assert lab.run.nothing_left(within_s=10)
    return lab.run


def resumed(lab: Machines, hosts: int, *arguments: str) -> Launched:
    run = lab._launch({}, "--listen", LISTEN, "--await-hosts", str(hosts), *arguments, command="resume")
    lab.run = run
    for _ in range(hosts):
        lab.join(f"other{len(lab.hosts)}")
    assert run.finish(60) == 0, run.stderr
    assert [host.finish(10) for host in lab.hosts[-hosts:]] == [0] * hosts
    assert run.nothing_left()
    assert not [left for host in lab.hosts[-hosts:] for left in host.logs.glob("resumed-from")]
    return run


def ends_the_same(out: Path, engine: str) -> None:
    summary = json.loads((out / "summary.json").read_text())
    assert {said: summary[said] for said in SAID} == {said: expected(engine)[said] for said in SAID}
    assert summary["warnings"] == [], "the record holds what must hold"
    assert not (out / "checkpoints").exists()


@pytest.mark.parametrize(
    ("engine", "who", "hosts"),
    [
        ("sync", "launcher", 2),
        ("sync", "host", 0),
        ("fedbuff", "host", 1),
        ("peers, asynchronous", "launcher", 2),
    ],
)
def test_whoever_is_killed_it_goes_on_over_other_hosts_or_here(
    engine: str, who: str, hosts: int, lab: Machines
) -> None:
    begun(lab, long(engine))
    run = left_by_killing(lab, who)
    if hosts:
        resumed(lab, hosts)
    else:
        resume(run.out, quiet=True)
    ends_the_same(run.out, engine)


def test_a_run_of_one_machine_goes_on_over_two(lab: Machines) -> None:
    lab.run = lab._launch(long("fedbuff"))
    lab.run.wait_for(lambda run: Checkpoints(run.out).last_round() >= EVERY)
    lab.run.process.kill()
    lab.run.finish(10)
    assert lab.run.nothing_left(within_s=10)
    ends_the_same(resumed(lab, 2, "--local-clients", "1").out, "fedbuff")


@pytest.mark.parametrize(
    ("engine", "who"),
    [("sync", "client"), ("fedbuff", "server"), ("peers, asynchronous", "host")],
)
def test_it_goes_on_by_itself_with_those_that_are_left(engine: str, who: str, lab: Machines) -> None:
    begun(lab, long(engine, run__on_loss="restart"))
    if who == "host":
        lab.hosts[1].process.kill()
    else:
        os.kill(lab.hosts[1].pid_of("c003") if who == "client" else lab.run.pid_of("server"), signal.SIGKILL)
    assert lab.run.finish(60) == 0, lab.run.stderr
    assert lab.hosts[0].finish(10) == 0
    assert lab.run.nothing_left()
    ends_the_same(lab.run.out, engine)
    (restarted,) = lab.run.rows("events", what="restarted")
    assert {"host": "pc2: the connection", "client": "SIGKILL on pc2", "server": "SIGKILL"}[who] in restarted["detail"]
    assert "goes back to a checkpoint in the run of 127.0.0.1 as pc1" in lab.hosts[0].said
    hosts = json.loads((lab.run.out / "summary.json").read_text())["hosts"]
    assert hosts == ({"pc1": 5} if who == "host" else {"pc1": 2, "pc2": 3})


def test_when_no_host_is_left_another_may_join_by_the_same_line(lab: Machines) -> None:
    lab.start(long("sync", run__on_loss="restart"), 1)
    lab.join("pc1", "--clients", "5")
    lab.run.wait_for(lambda run: Checkpoints(run.out).last_round() >= EVERY, within_s=60)
    lab.hosts[0].process.kill()
    lab.run.wait_for(lambda run: run.stderr.count("waiting for 1 machine; on each: pflsim host --join") == 2)
    lab.join("pc2")
    assert lab.run.finish(60) == 0, lab.run.stderr
    assert lab.hosts[1].finish(10) == 0
    assert lab.run.nothing_left()
    ends_the_same(lab.run.out, "sync")
    assert len(set(re.findall(r"--join (\S+)\n", lab.run.stderr))) == 1
