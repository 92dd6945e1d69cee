"""One study twice: over the machines of a test bed, in real time, and by the virtual clock."""

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from launch.comparison import run_all
from launch.fidelity.bed import Bed
from pflsim.errors import RunFailed
from pflsim.record.result import Result

SERVER = "server"
PORT = 5555
TOKEN_WITHIN_S = 60.0
ENDS_WITHIN_S = 300.0
_TOKEN = re.compile(r"pfl1\S+")
_PROGRAM = (sys.executable, "-m", "launch.cli")


class BedRun:
    """`pflsim run --listen` on the machine "server", and `pflsim host --join` on each other one, all real."""

    def __init__(self, bed: Bed, machines: Sequence[str], tables: Mapping[str, Any], place: Path) -> None:
        self._said = {machine: place / f"{machine}.said" for machine in (SERVER, *machines)}
        self.directory = place / "out"
        description = place / "run.toml"
        description.write_text(tomli_w.dumps(tables), encoding="utf-8")
        listen = f"tcp://{bed.addresses[SERVER]}:{PORT}"
        awaits = ["--listen", listen, "--await-hosts", str(len(machines)), "--out", str(self.directory)]
        self._bed = bed
        self.launcher = self._start(SERVER, "run", str(description), *awaits)
        token = self._token()
        for machine in machines:
            self._start(machine, "host", "--join", token, "--name", machine, "--logs", str(place / f"logs-{machine}"))

    def finish(self) -> Result:
        """Await the end. Raises RunFailed with the last words of all, if it was not a good one."""
        try:
            code = self.launcher.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            code = -1
        if code:
            words = "\n".join(f"{machine}: {self.words(machine)[-2000:]}" for machine in self._said)
            raise RunFailed(SERVER, f"the run over the test bed ended with {code}:\n{words}")
        return Result.open(self.directory)

    def words(self, machine: str) -> str:
        """What its program has printed so far."""
        return self._said[machine].read_text(encoding="utf-8")

    def _start(self, machine: str, *arguments: str) -> "subprocess.Popen[str]":
        with self._said[machine].open("w") as said:
            how = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
            return self._bed.start(machine, [*_PROGRAM, *arguments], **how)

    def _token(self) -> str:
        until_s = time.monotonic() + TOKEN_WITHIN_S
        while time.monotonic() < until_s and self.launcher.poll() is None:
            found = _TOKEN.search(self.words(SERVER))
            if found:
                return found.group()
            time.sleep(0.05)
        raise RunFailed(SERVER, f"waits for nobody: {self.words(SERVER)[-2000:]}")


def predicted(tables: Mapping[str, Any], place: Path) -> Result:
    """The same study by the virtual clock, on this machine."""
    (result,) = run_all(dict(tables), place / "predicted", quiet=True)
    return result


def round_times_s(result: Result) -> list[float]:
    """How long each round lasted."""
    return [(row["end_ns"] - row["start_ns"]) / 1e9 for row in result.rows("rounds")]
