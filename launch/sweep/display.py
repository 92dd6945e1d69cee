"""How a sweep gets on: a line for each run that has ended, and on a terminal below them what runs now."""

import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

_REFRESH_S = 0.5


class Pace:
    """How long runs take, by what they have in common, to tell how long the others will."""

    def __init__(self) -> None:
        self._took_s: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)

    def learn(self, row: str, column: str, wall_s: float) -> None:
        """A run of a cell has taken so long."""
        for kin in ((row, column), (column,), ()):
            self._took_s[kin].append(wall_s)

    def expected_s(self, row: str, column: str) -> float:
        """As its cell's runs on average, else as its column's, else as all; nan before the first has ended."""
        for kin in ((row, column), (column,), ()):
            if took_s := self._took_s.get(kin):
                return math.fsum(took_s) / len(took_s)
        return math.nan


class Display:
    """Shows lines as they come; on a terminal with a last line that says what runs now."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream, self._quiet = stream or sys.stderr, quiet
        self._live: Live | None = None
        self._shown_s = -math.inf
        if not quiet and self._stream.isatty() and os.environ.get("TERM") != "dumb":
            console = Console(file=self._stream, highlight=False)
            self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.console.print(line, markup=False)
        else:
            print(line, file=self._stream, flush=True)

    def is_due(self) -> bool:
        """Whether what runs now should be shown again: on a terminal only, and not too often."""
        return self._live is not None and time.monotonic() - self._shown_s >= _REFRESH_S

    def running(self, labels: Sequence[str], done: int, all_runs: int, remaining_s: float) -> None:
        """What runs now; shown on a terminal only."""
        if self._live is None:
            return
        self._shown_s = time.monotonic()
        lines = [Text(f"{done}/{all_runs} runs done{eta(remaining_s)}", style="bold")]
        lines += [Text(f"  {label}", style="dim", no_wrap=True, overflow="ellipsis") for label in labels]
        self._live.update(Text("\n").join(lines), refresh=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.update(Text(""), refresh=True)
            self._live.stop()
            self._live = None


def eta(remaining_s: float) -> str:
    """`, ETA 12:10`; empty where nothing is known."""
    if not math.isfinite(remaining_s):
        return ""
    minutes, seconds = divmod(round(remaining_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f", ETA {hours}:{minutes:02d}:{seconds:02d}" if hours else f", ETA {minutes}:{seconds:02d}"


def total_s(expected_s: Iterable[float], side_by_side: int) -> float:
    """How long runs take that share so many places; the longest of them takes its time in any case."""
    every = list(expected_s)
    return max(math.fsum(every) / side_by_side, max(every, default=0.0))
