"""`pflsim logs`: what the processes of a run said, in one stream, of one actor or of all."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from launch.finished import DONE
from launch.show import Screen
from pflsim.errors import DescriptionError
from pflsim.log import LEVELS

POLL_S = 0.5
STYLES = {"debug": "dim", "info": "", "warning": "yellow", "error": "bold red"}
_KNOWN = ("level", "event", "process", "run", "seconds", "actor", "round", "simulated_s")

Line = dict[str, Any]


def show_logs(directory: Path, actor: str | None, level: str, *, follow: bool, raw: bool) -> None:
    """Print the lines of at least this `level`, in the order of real time; `follow` goes on until the run has ended.

    `raw` prints them as the JSON that they are. Raises DescriptionError where no run has left any.
    """
    if not list((directory / "logs").glob("*.jsonl")):
        raise DescriptionError("DIR", str(directory), "has no logs/*.jsonl; is it the folder of a run?")
    console, reading = Screen(), Reading(directory / "logs")
    known = set[str]()
    while True:
        is_over = _is_over(directory)  # asked first: what is said until then is read once more
        for line in reading.new():
            known |= {str(line.get("actor", "")), str(line.get("process", ""))}
            if _is_wanted(line, actor, level):
                if raw:
                    print(json.dumps(line), flush=True)
                else:
                    console.print(_in_words(line), soft_wrap=True)
        if not follow or is_over:
            break
        time.sleep(POLL_S)
    if actor is not None and actor not in known:
        raise DescriptionError("--actor", actor, f"nobody of this name says anything there; see {directory / 'logs'}")


class Reading:
    """The log files of a run, read as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: dict[Path, int] = {}

    def new(self) -> list[Line]:
        """All whole lines that have come since the last call, in the order of real time."""
        lines = [line for path in sorted(self._folder.glob("*.jsonl")) for line in self._of(path)]
        return sorted(lines, key=lambda line: float(line.get("seconds", 0.0)))

    def of(self, process: str) -> list[Line]:
        """What one process has said since the last call; nothing if it has no log."""
        path = self._folder / f"{process}.jsonl"
        return list(self._of(path)) if path.exists() else []

    def _of(self, path: Path) -> Iterator[Line]:
        with path.open("rb") as file:
            file.seek(self._read_bytes.get(path, 0))
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole)
        for line in whole.splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # the disk was full, or the process was killed
                yield {"event": line.decode(errors="replace"), "level": "error", "process": path.stem}


def _is_wanted(line: Line, actor: str | None, level: str) -> bool:
    found = str(line.get("level", "info"))
    high_enough = found not in LEVELS or LEVELS.index(found) >= LEVELS.index(level)
    return high_enough and (actor is None or actor in (line.get("actor"), line.get("process")))


def _in_words(line: Line) -> Text:
    """`   1.234 s  c007  round 3  at 0.81 s  compute  lasts_s=0.2`, and a stack below."""
    level, said, who = str(line.get("level", "info")), Text(), str(line.get("actor", line.get("process", "")))
    said.append(f"{float(line.get('seconds', 0.0)):9.3f} s  {who:<9}", style="dim")
    said.append(f"  round {line['round']:<4}" if "round" in line else " " * 12)
    said.append(f"  at {line['simulated_s']:11.6f} s" if "simulated_s" in line else " " * 18)
    mark = f"  {level.upper()}" if level in ("warning", "error") else ""
    said.append(f"{mark}  {line.get('event', '')}", style=STYLES.get(level, ""))
    more = [f"{key}={value}" for key, value in line.items() if key not in (*_KNOWN, "exception", "detail")]
    said.append("".join(f"  {part}" for part in [*([str(line["detail"])] if "detail" in line else []), *more]))
    if "exception" in line:
        said.append(f"\n{line['exception']}")
    return said


def _is_over(directory: Path) -> bool:
    """Whether the launcher has said how the run ended."""
    said = Reading(directory / "logs").of("launcher")
    return any(line.get("event") in (DONE, "failed", "interrupted") for line in said)
