"""A long run, and whether anything grows: `python -m launch.bench.soak`.

W1's study over tcp with a checkpoint every 50 rounds, for 2,000 rounds. From the second quarter on, every process's
private memory and open files are sampled; a line through each process's samples says how fast its memory grows. Nothing
may be left of the run when it has ended.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import tomli_w

from launch.bench.measure import REPOSITORY
from launch.bench.workloads import EACH, workloads
from pflsim.errors import RunFailed

EVERY_S = 5.0
CHECKPOINT_EVERY = 50
Sample = tuple[float, int, int]
"""When, in seconds; private bytes; open files."""


@click.command()
@click.option("--rounds", type=click.IntRange(min=8), default=2000, show_default=True)
def main(rounds: int) -> None:
    """Run for long, and print what has grown."""
    plain = workloads()["W1"].tables_for(EACH)
    run = {"rounds": rounds, "transport": "tcp", "checkpoint_every": min(CHECKPOINT_EVERY, rounds // 4)}
    tables = plain | {"run": plain["run"] | run, "record": {"plot": False, "report": False}}
    with tempfile.TemporaryDirectory(prefix="pflsim-soak-") as place:
        began_s = time.monotonic()
        samples, summary = soak(tables, Path(place))
    click.echo(f"{summary['rounds']} rounds, {plain['run']['clients']} clients, {time.monotonic() - began_s:.0f} s")
    for line in told(samples):
        click.echo(line)


def soak(tables: dict[str, Any], place: Path) -> tuple[dict[str, list[Sample]], dict[str, Any]]:
    """The samples of each process by name, and the run's summary. Raises RunFailed if it fails or leaves processes."""
    description, out = place / "soak.toml", place / "out"
    description.write_text(tomli_w.dumps(tables), encoding="utf-8")
    command = [sys.executable, "-m", "launch.cli", "run", str(description), "--out", str(out), "--quiet"]
    samples: dict[str, list[Sample]] = defaultdict(list)
    seen: dict[int, psutil.Process] = {}
    with (place / "screen").open("wb") as screen:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=screen, stderr=screen)
    while process.poll() is None:
        time.sleep(EVERY_S)
        for one in _processes(process.pid):
            seen[one.pid] = one
            if (sample := _sample(one)) is not None:
                samples[_name(one, out, process.pid)].append(sample)
    if process.returncode:
        raise RunFailed("soak", (place / "screen").read_text()[-2000:])
    if left := [pid for pid, one in seen.items() if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]:
        raise RunFailed("soak", f"left processes behind: {left}")
    return samples, json.loads((out / "summary.json").read_text())


def told(samples: dict[str, list[Sample]]) -> list[str]:
    """One line for each sort of process: the clients together, and each of the others."""
    sorts: dict[str, list[str]] = defaultdict(list)
    for name in sorted(samples):
        sorts["a client" if name[1:].isdecimal() else name].append(name)
    lines = []
    for sort, names in sorts.items():
        settled = [samples[name][len(samples[name]) // 4 : -1] for name in names]  # the last was taken as it ended
        slopes = [slope for one in settled if (slope := megabytes_per_hour(one)) is not None]
        last_mb = max((one[-1][1] for one in settled if one), default=0) / 1e6
        files = sorted({sample[2] for one in settled for sample in one}) or [0]
        most = f"{max(slopes):+.2f} MB/h at most, {np.median(slopes):+.2f} in the middle" if slopes else "too short"
        lines.append(f"{sort:<10} {last_mb:7.1f} MB at the end, {most}; open files {files[0]} to {files[-1]}")
    return lines


def megabytes_per_hour(samples: Sequence[Sample]) -> float | None:
    """The slope of a line through the samples' bytes; None if there are too few."""
    if len(samples) < 3:
        return None
    times_s, sizes, _ = zip(*samples, strict=True)
    return float(np.polyfit(times_s, sizes, 1)[0]) * 3600 / 1e6


def _processes(pid: int) -> list[psutil.Process]:
    try:
        launcher = psutil.Process(pid)
        return [launcher, *launcher.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _sample(process: psutil.Process) -> Sample | None:
    try:
        private_bytes = process.memory_full_info().uss
        return (time.monotonic(), private_bytes, process.num_fds()) if private_bytes else None
    except (psutil.NoSuchProcess, FileNotFoundError):
        return None


def _name(process: psutil.Process, out: Path, launcher: int) -> str:
    """That of its log, which is the only one that it has open; the launcher has its own."""
    if process.pid == launcher:
        return "launcher"
    try:
        logs = [Path(file.path).stem for file in process.open_files() if Path(file.path).parent == out / "logs"]
    except psutil.NoSuchProcess:
        logs = []
    return next((log for log in logs if log != "host"), "host")


if __name__ == "__main__":
    main()
