"""Runs over several machines for the tests: all are this one, and each `pflsim host` is a process."""

import os
import re
import socket as sockets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.launching import MARK, ROOT, Launched, happens, launcher, show_logs

LISTEN = "tcp://127.0.0.1:0"


class Machine:
    """One `pflsim host`, which bears the mark of its run, so that nothing of it can hide."""

    def __init__(
        self, run: Launched, name: str, place: Path, *arguments: str, token: str = "", module: str = "", **env: str
    ) -> None:
        self.name, self._place = name, place / name
        self._place.mkdir()
        self.logs = self._place / "logs"
        command = ["host", "--join", token or run_token(run), "--name", name, "--logs", str(self.logs), *arguments]
        with (self._place / "said").open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module or "launch.cli", *command],
                cwd=ROOT,
                env=os.environ | {MARK: run.mark} | env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )

    @property
    def said(self) -> str:
        return (self._place / "said").read_text()

    def finish(self, within_s: float) -> int:
        """The exit code; an error of the test when it takes longer."""
        return self.process.wait(within_s)

    def pid_of(self, actor: str) -> int:
        """The process here that writes the actor's log."""
        log = str(self.logs / f"{actor}.log")
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if any(file.path == log for file in child.open_files()):
                return int(child.pid)
        raise AssertionError(f"{actor} does not run on {self.name}")

    def show(self) -> None:
        """Print what it said; pytest shows it if the test failed."""
        print(f"{self.name}: {self.said}")
        show_logs(self._place)


class Machines:
    """One launcher and its hosts."""

    def __init__(self, launch: Callable[..., Launched], place: Path) -> None:
        self._launch, self._place = launch, place
        self.run: Launched
        self.hosts: list[Machine] = []

    def start(self, tables: Mapping[str, Any], hosts: int, *arguments: str) -> Launched:
        """Start the launcher, which waits for so many hosts."""
        self.run = self._launch(tables, "--listen", LISTEN, "--await-hosts", str(hosts), *arguments)
        return self.run

    def join(self, name: str, *arguments: str, **more: str) -> Machine:
        """Start one more host."""
        self.hosts.append(Machine(self.run, name, self._place, *arguments, **more))
        return self.hosts[-1]

    def show(self) -> None:
        """Print what all have said."""
        for host in self.hosts:
            host.show()


def machines(place: Path) -> Iterator[Machines]:
    """What a fixture yields; all of it is ended with the test."""
    launching = launcher(place)
    ours = Machines(next(launching), place)
    yield ours
    ours.show()
    next(launching, None)
    for host in ours.hosts:
        host.process.wait(5)


def run_token(run: Launched) -> str:
    """The token that the launcher has printed."""
    pattern = re.compile(r"--join (\S+)\n")
    run.wait_for(lambda run: pattern.search(run.stderr) is not None, within_s=45)
    found = pattern.search(run.stderr)
    assert found is not None
    return found[1]


def ports(run: Launched) -> list[int]:
    """At which the processes of a run listen."""
    found: set[int] = set()
    for process in run.left():
        with suppress(psutil.Error):  # it has ended just now
            found |= {one.laddr.port for one in process.net_connections("tcp") if one.status == "LISTEN"}
    return sorted(found)


def throw(port: int, data: bytes) -> None:
    """Send bytes to a port, and go away."""
    with sockets.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(data)


def soon(what: Callable[[], bool], within_s: float = 20.0) -> None:
    """Fail unless it happens."""
    assert happens(what, within_s)
