"""The task that runs on a worker of a Dask cluster: it brings that machine, as a host, to a run."""

import subprocess
import sys
from collections import deque
from contextlib import suppress

from launch.host import environment
from launch.hosts.beginning import BEGINNING
from launch.hosts.remote import LAST_LINES

TOPIC = "pflsim"
"""Of the cluster's events, under which what hosts say is found."""


def bring(token: str, name: str) -> tuple[int, str]:
    """Run a host until its run is over; its exit code, and its last lines.

    The host is a child that ends when its standard input does, and so with the worker, however that ends.
    """
    from distributed import get_worker

    worker, last = get_worker(), deque[str](maxlen=LAST_LINES)
    command = [sys.executable, "-P", "-c", BEGINNING, "host", "--join", "-", "--tied", "--name", name]
    process = subprocess.Popen(
        command,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin as hand, process.stdout as said:
        with suppress(BrokenPipeError):
            hand.write(f"{token}\n")
            hand.flush()
        for line in filter(None, map(str.rstrip, said)):
            last.append(line)
            worker.log_event(TOPIC, {"name": name, "line": line})
        return process.wait(), last[-1] if last else ""
