"""Hosts on the workers of a real Dask cluster, and on the nodes that a stand-in for Slurm gives its recipe."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w

from launch.hosts.cluster import DaskWorkers
from pflsim.errors import DescriptionError
from tests.launching import MARK, ROOT, description, happens, launcher
from tests.test_failures import FAILED, endless, runs
from tests.test_hosts import digests
from tests.test_peers import expected

pytestmark = pytest.mark.timeout(180)

LISTEN = ("--listen", "tcp://127.0.0.1:0")


class Cluster:
    """A Dask cluster whose workers are processes of this machine."""

    def __init__(self, workers: int, place: Path) -> None:
        with (place / "dask").open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.dask_cluster", str(workers)],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def worker_of(self, host: str) -> psutil.Process:
        """The worker that has brought a host."""
        for one in psutil.Process(self.process.pid).children(recursive=True):
            if one.cmdline()[-2:] == ["--name", host]:
                found = one.parent()
                assert found is not None
                return found
        raise AssertionError(f"nobody has brought {host}")

    def end(self) -> None:
        """End it with all that it has started."""
        started = psutil.Process(self.process.pid).children(recursive=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)
        for one in started:
            if one.is_running():
                one.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    ours = Cluster(3, tmp_path_factory.mktemp("cluster"))
    yield ours
    ours.end()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Any]:
    yield from launcher(tmp_path)


@pytest.mark.slow
def test_a_run_on_the_workers_of_a_cluster_places_all_clients_and_gives_the_bits_of_one_machine(
    launch: Any, cluster: Cluster
) -> None:
    tables = description(run__clients=7)
    run = launch(tables, *LISTEN, "--cluster", cluster.address)
    assert run.finish(120) == 0, run.stderr
    assert digests(run.out) == expected(tables)
    hosts = json.loads((run.out / "summary.json").read_text())["hosts"]
    assert len(hosts) == 3 and sorted(hosts.values()) == [2, 2, 3]
    assert all(f"[{name}] joined the run of 127.0.0.1" in run.stderr for name in hosts)
    assert run.nothing_left()


@pytest.mark.slow
def test_a_run_fails_with_the_worker_that_is_killed_and_its_cluster_lives_on(launch: Any, cluster: Cluster) -> None:
    run = launch(endless(), *LISTEN, "--cluster", cluster.address, "--await-hosts", "2")
    run.wait_for(runs, within_s=90)
    hosts = [row["actor"] for row in run.rows("events", what="host joined")]
    worker = cluster.worker_of(hosts[1])
    brought = worker.children(recursive=True)
    assert len(hosts) == 2 and len(brought) >= 4, "what talks, the host, and two clients"
    worker.send_signal(signal.SIGKILL)
    assert run.finish(30) == FAILED
    assert f"the run failed: {hosts[1]}: " in run.stderr
    assert run.nothing_left()
    assert happens(lambda: not any(one.is_running() for one in brought), 10)
    again = DaskWorkers(cluster.address, 3)
    assert again.count(30) == 3, "its nanny has brought another worker"


def test_a_cluster_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr("launch.hosts.cluster.CONNECT_S", 0.5)
    with pytest.raises(DescriptionError, match=r"--cluster = 'dask://127.0.0.1:9': no Dask scheduler answers there"):
        DaskWorkers("dask://127.0.0.1:9", None).count(1)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(DescriptionError, match=r"needs the package distributed: pip install 'pflsim\[dask\]'"):
        DaskWorkers("dask://127.0.0.1:9", None).count(1)


def slurm(place: Path, tables: dict[str, Any], nodes: int, *arguments: str) -> "subprocess.Popen[str]":
    """Submit the recipe to nobody: it runs here, with `tests/srun` in the place of Slurm's."""
    (place / "run.toml").write_text(tomli_w.dumps(tables))
    pflsim = place / "pflsim"
    pflsim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m launch.cli "$@"\n')
    pflsim.chmod(0o755)
    tools = place / "bin"
    tools.mkdir()
    (tools / "srun").symlink_to(ROOT / "tests" / "srun")
    job = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PFLSIM": str(pflsim),
        "PFLSIM_LISTEN": "tcp://127.0.0.1:0",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_SUBMIT_DIR": str(place),
        MARK: str(place),
    }
    script = ["bash", str(ROOT / "launch" / "slurm.sbatch"), "run.toml", "--out", "out", *arguments]
    with (place / "said").open("w") as said:
        return subprocess.Popen(script, env=os.environ | job, stdout=said, stderr=said, text=True, process_group=0)


def left(place: Path) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        try:
            found += [one] if one.environ().get(MARK) == str(place) else []
        except psutil.Error:
            continue
    return found


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


@needs_bash
def test_the_recipe_for_slurm_is_sound_bash_and_says_what_it_needs() -> None:
    script = str(ROOT / "launch" / "slurm.sbatch")
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""
    alone = subprocess.run(["bash", script], capture_output=True, text=True)
    assert (alone.returncode, alone.stderr.split(":")[0]) == (2, "usage")


@needs_bash
@pytest.mark.slow
def test_the_recipe_for_slurm_runs_a_host_on_each_node_with_a_token_that_only_its_owner_can_read(
    tmp_path: Path,
) -> None:
    tables = description()
    job = slurm(tmp_path, tables, 2)
    token: dict[str, int] = {}

    def it_has_begun() -> bool:
        for file in tmp_path.glob(".pflsim-7-*/token"):
            token["file"], token["folder"] = file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777
        return bool(token) or job.poll() is not None

    assert happens(it_has_begun, 60) and token == {"file": 0o600, "folder": 0o700}
    assert job.wait(120) == 0, (tmp_path / "said").read_text()
    assert digests(tmp_path / "out") == expected(tables)
    assert set(json.loads((tmp_path / "out" / "summary.json").read_text())["hosts"]) == {"node0", "node1"}
    assert happens(lambda: not left(tmp_path), 5)
    assert list(tmp_path.glob(".pflsim-*")) == []


@needs_bash
@pytest.mark.slow
def test_when_slurm_ends_the_job_nothing_of_it_is_left(tmp_path: Path) -> None:
    job = slurm(tmp_path, endless(), 2)
    assert happens(lambda: "round 1" in (tmp_path / "said").read_text() or job.poll() is not None, 90)
    job.terminate()
    assert job.wait(30) == 143
    assert happens(lambda: not left(tmp_path), 5)
    assert list(tmp_path.glob(".pflsim-*")) == []


@needs_bash
@pytest.mark.slow
def test_a_job_whose_run_cannot_be_ends_with_its_code(tmp_path: Path) -> None:
    job = slurm(tmp_path, description(run__rounds=0), 2)
    assert job.wait(30) == 2
    assert "run.rounds = 0" in (tmp_path / "said").read_text()
