"""`pflsim watch`: a run as it goes on, live on a terminal, from its record alone; it reads, and disturbs nothing."""

import json
import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from launch.checkpoints import Checkpoints
from launch.finished import FinishedRun
from launch.memory import pss_bytes
from launch.show import Screen
from pflsim.record.database import Reader
from pflsim.record.durations import duration
from pflsim.record.sizes import size
from pflsim.record.snapshot import COMPUTING, DEAD, OFFLINE, SENDING, STATES, WAITING, Snapshot, snapshot

EVERY_S = 0.5
PAUSE_PER_COST = 20
"""So many times as long as a look at the record takes does the next one wait: reading costs some 5 % of a core."""
MEMORY_EVERY_S = 3.0
GONE_S = 10.0
"""For so long nothing of a run must have been there before it is held for killed."""
LINE_EVERY_S = 1.0

MARKS = {COMPUTING: ("■", "blue"), SENDING: ("▲", "yellow"), WAITING: ("·", "dim"), OFFLINE: ("○", "magenta"),
         DEAD: ("✗", "bold red")}  # fmt: skip
_ON_FIRST_LINE = 4
"""So many of the facts."""
_LARGEST = 5
"""So many processes are named with their memory."""
_BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Watched:
    """What is known of the run that is watched."""

    name: str
    rounds: int
    now: Snapshot
    bytes_per_s: float = 0.0
    """Payload, by the host's clock, since the last look; of a run that is over, in the mean."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Of each of its processes on this machine, by the name of its log."""
    memory_course: Sequence[int] = ()
    """All of them together since this view began, every `MEMORY_EVERY_S` seconds."""
    most_bytes: int = 0
    """The most memory that a run which is over has had, all of its processes together."""

    @property
    def remaining_s(self) -> float | None:
        """Host seconds to the end at the pace so far."""
        if not 0 < self.now.rounds < self.rounds or self.now.ended or not self.now.wall_s:
            return None
        return (self.rounds - self.now.rounds) * self.now.wall_s / self.now.rounds


def watch(directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
    """Show the run in `directory` until it ends, somebody presses q, or nothing of it is left."""
    watcher = Watcher(directory, clock)
    console = Screen()
    if not (console.is_terminal and os.environ.get("TERM") != "dumb"):
        _lines(watcher, console)
        return
    with _keys() as pressed, Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
        while True:
            watched = watcher.look()
            live.update(view(watched, console.width, console.height), refresh=True)
            if watcher.is_over or pressed(watcher.pause_s) in ("q", "Q"):
                break
    if watcher.is_over and not watched.now.ended:
        console.print(watcher.what_is_left, markup=False)


class Watcher:
    """Looks at the record of one run, seldom enough to cost little."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory, self._clock = directory, clock
        self._run = _opened(directory)
        self._run.reader.close()
        run = self._run.description.run
        self._rounds = min(run.rounds, run.stop.rounds or run.rounds)
        self._seen: tuple[float, int] | None = None
        self._memory: tuple[float, dict[str, int]] = (-MEMORY_EVERY_S, {})
        self._course: list[int] = []
        self._alive_s = clock()
        self.pause_s, self.is_over = EVERY_S, False

    def look(self) -> Watched:
        """What is to be seen now; the connection is closed again, so that the run can tidy up its record."""
        began_s = self._clock()
        with Reader(self._directory / "record.db") as reader:
            now = snapshot(reader)
        self.pause_s = max(EVERY_S, PAUSE_PER_COST * (self._clock() - began_s))
        found = Watched(self._run.description.algorithm.name, self._rounds, now)
        total = sum(now.payload_bytes.values())
        if now.ended:
            found.bytes_per_s, found.most_bytes = total / (now.wall_s or math.inf), _most_bytes(self._directory)
        elif self._seen is not None and began_s > self._seen[0]:
            found.bytes_per_s = (total - self._seen[1]) / (began_s - self._seen[0])
        self._seen = began_s, total
        if not now.ended:
            found.memory_bytes, found.memory_course = self._weigh(began_s), self._course
        self.is_over = bool(now.ended) or (not found.memory_bytes and began_s - self._alive_s > GONE_S)
        return found

    @property
    def what_is_left(self) -> str:
        """Of a run that was killed, in words."""
        kept = Checkpoints(self._directory).last_round()
        rest = f"; `pflsim resume {self._directory}` goes on after round {kept}" if kept else ""
        return f"this run was killed: no process of it is there any more, its record is{rest}"

    def _weigh(self, now_s: float) -> dict[str, int]:
        """The memory of each of the run's processes; asked now and then, as that costs time."""
        if now_s - self._memory[0] >= MEMORY_EVERY_S:
            weights = {name: pss_bytes(pid) for pid, name in processes_of(self._directory).items()}
            self._memory = now_s, weights
            if weights:
                self._alive_s = now_s
                self._course.append(sum(weights.values()))
        return self._memory[1]


def _most_bytes(directory: Path) -> int:
    """What the summary says of memory; 0 if there is none, or none that can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((directory / "summary.json").read_text(encoding="utf-8"))["memory"]["peak_pss_bytes"])
    return 0


def _opened(directory: Path) -> FinishedRun:
    """The run in `directory`, as soon as it has said what it runs; DescriptionError if it never will."""
    while not (directory / "run.toml").exists() and processes_of(directory):
        time.sleep(EVERY_S)
    return FinishedRun(directory)


def processes_of(directory: Path) -> dict[int, str]:
    """The processes that print into the logs of a run, and these logs' names; none where the kernel does not tell."""
    logs, found = directory.resolve() / "logs", {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            printed = (entry / "fd" / "1").readlink()
            if printed.parent == logs:
                found[int(entry.name)] = printed.stem
    return found


def line(watched: Watched) -> str:
    """A run on one line, for what is no terminal."""
    now = watched.now
    said = [watched.name, f"round {now.rounds}/{watched.rounds}", *_facts(watched)]
    return "  ".join([*said, *[f"{now.count[state]} {state}" for state in STATES if now.count[state]]])


def view(watched: Watched, width: int, height: int) -> Group:
    """A run as it is shown live."""
    now = watched.now
    head = Text.assemble((watched.name, "bold"), "  ", *_bar(now.rounds, watched.rounds, 24),
                         (f"  round {now.rounds}/{watched.rounds}", "cyan"), f"  {_pace(watched)}")  # fmt: skip
    facts = _facts(watched)
    rows = [head, Text("  ".join(facts[:_ON_FIRST_LINE]))]
    if facts[_ON_FIRST_LINE:]:
        rows.append(Text("  ".join(facts[_ON_FIRST_LINE:])))
    if len(now.accuracies) > 1:
        rows.append(Text.assemble("accuracy over rounds ", (_spark(now.accuracies, width - 22), "green")))
    if watched.memory_course:
        rows.append(_memory(watched, width))
    rows.append(_counted(now))
    room = max(1, height - len(rows) - 4)
    rows += _clients(now, width, room)
    if now.slowest:
        slow = [f"{one.client} {duration(round(one.mean_ns))}" for one in now.slowest]
        rows.append(Text(_fitting("slowest, a piece of work in the mean: ", slow, width)))
    rows.append(Text(_last_word(watched), style="dim"))
    for row in rows:
        row.no_wrap, row.overflow = True, "ellipsis"
    return Group(*rows)


def _facts(watched: Watched) -> list[str]:
    now = watched.now
    said = [f"accuracy {100 * now.accuracies[-1]:.1f} %"] if now.accuracies else []
    said.append(f"simulated {duration(now.simulated_ns)}")
    ways = {"up": "↑", "down": "↓", "peer": "between peers "}
    sent = [f"{ways[way]}{size(count)}" for way, count in now.payload_bytes.items() if count]
    said.append(" ".join(sent) or "nothing sent")
    said.append(f"{size(watched.bytes_per_s)}/s{' in the mean' if now.ended else ''}")
    if watched.most_bytes:
        said.append(f"memory up to {size(watched.most_bytes)}")
    if watched.memory_bytes:
        said.append(f"memory {size(sum(watched.memory_bytes.values()))} in {len(watched.memory_bytes)} processes")
    if now.rejected:
        said.append(f"{now.rejected} uploads rejected")
    return said


def _last_word(watched: Watched) -> str:
    return f"this run is over: {watched.now.ended}" if watched.now.ended else "q leaves; the run goes on"


def _pace(watched: Watched) -> str:
    seconds = watched.remaining_s
    return "" if seconds is None else f"ETA {round(seconds) // 60}:{round(seconds) % 60:02d}"


def _bar(done: int, of: int, width: int) -> list[tuple[str, str]]:
    filled = min(width, width * done // max(1, of))
    return [("━" * filled, "green"), ("━" * (width - filled), "bright_black")]


def _memory(watched: Watched, width: int) -> Text:
    """Its course in a third of the line, from nothing to the most, and the largest processes."""
    largest = sorted(watched.memory_bytes.items(), key=lambda one: -one[1])[:_LARGEST]
    course = _spark(watched.memory_course, width // 3, low=0)
    names = [f"{name} {size(count)}" for name, count in largest]
    most = _fitting("  most: ", names, width - len("memory over time ") - len(course)) if names else ""
    return Text.assemble("memory over time ", (course, "cyan"), most)


def _fitting(label: str, parts: Sequence[str], width: int) -> str:
    """As many of the parts behind a label as there is room for, one at least."""
    shown = label + parts[0]
    for part in parts[1:]:
        if len(f"{shown}, {part}") > width:
            break
        shown += f", {part}"
    return shown


def _spark(values: Sequence[float], width: int, low: float | None = None) -> str:
    """The course of some numbers in one line of text, from `low`, or the least of them, to the largest."""
    step = -(-len(values) // max(1, width))
    shown = values[::-1][::step][::-1]
    low, high = min(shown) if low is None else low, max(shown)
    return "".join(_BARS[int((value - low) / (high - low or 1.0) * (len(_BARS) - 1))] for value in shown)


def _counted(now: Snapshot) -> Text:
    if not now.states:
        return Text("nobody has joined yet")
    parts: list[tuple[str, str] | str] = [f"{len(now.states)} clients:"]
    for state in STATES:
        mark, style = MARKS[state]
        if now.count[state]:
            parts.append((f"  {mark} {now.count[state]} {state}", style))
    return Text.assemble(*parts)


def _clients(now: Snapshot, width: int, rows: int) -> Iterator[Text]:
    """A mark for each client, in their order; as many as there is room for."""
    names = list(now.states)
    per_row = max(1, (width - 8) // 11 * 10)
    for start in list(range(0, len(names), per_row))[:rows]:
        row = Text(f"{names[start]:<7}", style="dim")
        for place, name in enumerate(names[start : start + per_row]):
            mark, style = MARKS[now.states[name]]
            row.append(" " if place % 10 == 0 else "")
            row.append(mark, style=style)
        yield row


def _lines(watcher: Watcher, console: Console) -> None:
    """Plain lines where nobody looks live: one when a round has ended, and at the end."""
    shown = None
    while True:
        watched = watcher.look()
        if watched.now.rounds != shown or watched.now.ended:
            console.print(line(watched), markup=False, highlight=False, soft_wrap=True)
            shown = watched.now.rounds
        if watcher.is_over:
            console.print(_last_word(watched) if watched.now.ended else watcher.what_is_left, markup=False)
            return
        time.sleep(max(LINE_EVERY_S, watcher.pause_s))


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """What waits so many seconds for a key, and tells which it was ("" for none); the terminal is left as it was."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield _nothing_after
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield lambda wait_s: os.read(descriptor, 1).decode(errors="replace") if _is_ready(descriptor, wait_s) else ""
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _nothing_after(wait_s: float) -> str:
    time.sleep(wait_s)
    return ""


def _is_ready(descriptor: int, wait_s: float) -> bool:
    return bool(select.select([descriptor], [], [], wait_s)[0])
