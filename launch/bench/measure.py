"""Measures one floor or one run, each in a fresh process as a user would start it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from launch.bench.workloads import Workload
from launch.memory import pss_bytes
from pflsim.errors import RunFailed
from pflsim.record.database import Reader

REPOSITORY = Path(__file__).resolve().parents[2]
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PAUSE_S = 0.3


@dataclass(frozen=True)
class Measured:
    """What one run did. Rates are inside the run: from the end of the first round to the end of the last."""

    rounds_per_s: float
    first_round_s: float  # from the command to the end of the first round
    wall_s: float  # the whole command
    processor_s: float  # of all its processes, the launcher's included
    peak_pss_bytes: int | None = None  # only where it was asked for, because sampling costs time


def measure_floor(floor: str, workload: Workload, quick: bool) -> float:
    """Rounds per second of a floor."""
    command = [sys.executable, "-m", "launch.bench.floors", floor, workload.name, *["--quick"] * quick]
    done = subprocess.run(command, env=_environment(), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RunFailed(f"floor {floor} of {workload.name}", f"ended with exit code {done.returncode}")
    return float(json.loads(done.stdout)["rounds_per_s"])


def measure_run(workload: Workload, form: str, *, memory: bool = False) -> Measured:
    """One run of `pflsim run`; with `memory`, its processes are sampled while it runs, which slows it down."""
    with tempfile.TemporaryDirectory(prefix="pflsim-bench-") as name:
        folder = Path(name)
        description = folder / f"{workload.name}.toml"
        description.write_text(tomli_w.dumps(workload.tables_for(form)), encoding="utf-8")
        command = [sys.executable, "-m", "launch.cli", "run", str(description)]
        command += ["--out", str(folder / "out"), "--quiet"]
        started_s = time.monotonic()
        with (folder / "screen").open("wb") as screen:
            process = subprocess.Popen(command, env=_environment(), stdout=screen, stderr=screen)
        peak_bytes = _peak_pss_bytes(process) if memory else None
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RunFailed(workload.name, (folder / "screen").read_text(errors="replace"))
        summary = json.loads((folder / "out" / "summary.json").read_text(encoding="utf-8"))
        with Reader(folder / "out" / "record.db") as reader:
            rate, ended_s = _inside(reader)
        ended_s += summary["time"]["host_clock_at_start_s"]
        processor_s = used.ru_utime + used.ru_stime
        return Measured(rate, ended_s - started_s, wall_s, processor_s, peak_bytes)


def _inside(reader: Reader) -> tuple[float, float]:
    """Rounds per second, and how many seconds after the run had started the first round ended."""
    ended_s = [row["wall_s"] for row in reader.rows("rounds")]
    began = next(row["wall_s"] for row in reader.rows("events", actor="server", what="began"))
    return (len(ended_s) - 1) / (ended_s[-1] - ended_s[0]), began + ended_s[0]


def _peak_pss_bytes(launcher: "subprocess.Popen[bytes]") -> int:
    """The largest sum of proportional set sizes of the launcher and all that it started."""
    peak_bytes, tree = 0, psutil.Process(launcher.pid)
    while os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        pids = [launcher.pid, *(process.pid for process in tree.children(recursive=True))]
        peak_bytes = max(peak_bytes, sum(map(pss_bytes, pids)))
        time.sleep(PAUSE_S)
    return peak_bytes


def _environment() -> dict[str, Any]:
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | THREADS | {"PYTHONPATH": os.pathsep.join(paths)}
