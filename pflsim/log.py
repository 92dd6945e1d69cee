"""The log of a process: a line of JSON per event in `logs/PROCESS.jsonl`, and what matters in words on standard error.

Each line has `level`, `event`, `process`, `run` (its id), `seconds` since the run began, and, where it is about an
actor, `actor`, `round` (from 1) and `simulated_s`. `pflsim logs` reads them. Standard error, which a run keeps as
`logs/PROCESS.log`, has what the process says of itself and every warning, beside whatever else is printed there.
"""

from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import structlog

from pflsim.timing.clock import NANOSECONDS, host_nanoseconds
from pflsim.values import Level

LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")

_WARNINGS = ("waiting", "few", "late", "stale", "rejected", "skipped", "gone", "away", "cancelled")
_LOST = ("offline", "lost work", "lost send", "cancelled")
_WORK = "compute"
_TABLES = frozenset({"events", "spans", "rounds", "dropped"})
"""Those whose facts are logged; there are many more of others."""

Event = MutableMapping[str, Any]


def log_file(folder: Path, process: str) -> TextIO:
    """The file of a process's log in the folder of logs, open for what comes."""
    return (folder / f"{process}.jsonl").open("a", encoding="utf-8")


def open_log(process: str, run_id: bytes, started_ns: int, file: TextIO, level: Level, said: TextIO | None) -> Any:
    """The logger of this process into `file`, with methods such as `info(event, key=value)`.

    `said` is where also people read (None: nowhere).
    """

    def since_start(_: object, __: str, event: Event) -> Event:
        return {"seconds": round((host_nanoseconds() - started_ns) / NANOSECONDS, 3), **event}

    return structlog.wrap_logger(
        structlog.PrintLogger(file),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            since_start,
            _said_to(said),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    ).bind(process=process, run=run_id.hex())


def _said_to(stream: TextIO | None) -> Any:
    """Says a line in words too, unless it is an actor's everyday business."""
    render = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False)

    def say(logger: Any, name: str, event: Event) -> Event:
        if stream is not None and (event["level"] in ("warning", "error") or "actor" not in event):
            words = render(logger, name, {key: value for key, value in event.items() if key != "run"})
            print(words, file=stream, flush=True)
        return event

    return say


class FactLog:
    """Puts those facts that tell what happens to actors into a log; the record has all of them."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._rounds: dict[str, int] = {}

    def note(self, fact: tuple[Any, ...]) -> None:
        """Log one fact, at the level that it deserves; a full disk is no reason to fail."""
        table, *values = fact
        if table not in _TABLES:
            return
        with suppress(OSError):
            if table == "events":
                self._event(*values[:4])
            elif table == "spans":
                self._span(*values)
            elif table == "rounds":
                number, start_ns, end_ns = values[:3]
                self._line(
                    "info", "round", "server", number, end_ns, answers=values[5], lasted_s=_seconds(end_ns - start_ns)
                )
            elif table == "dropped":
                self._log.warning("dropped", actor=values[0], reason=values[1], detail=values[2])

    def _event(self, actor: str, what: str, detail: str, simulated_ns: int) -> None:
        if what != "died":  # which the process says itself, with its stack
            level: Level = "warning" if what in _WARNINGS else "info"
            more = {"detail": detail} if detail and what != "finished" else {}  # the summary has what that tells
            self._line(level, what, actor, self._rounds.get(actor), simulated_ns, **more)

    def _span(self, actor: str, what: str, start_ns: int, end_ns: int, round: int) -> None:
        self._rounds[actor] = round
        level: Level = "info" if what == _WORK else "warning" if what in _LOST else "debug"
        self._line(level, what, actor, round, start_ns, lasts_s=_seconds(end_ns - start_ns))

    def _line(self, level: Level, event: str, actor: str, round: int | None, now_ns: int, **more: Any) -> None:
        known = {} if round is None else {"round": round}
        self._log.log(_NUMBERS[level], event, actor=actor, **known, simulated_s=_seconds(now_ns), **more)


_NUMBERS: dict[Level, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _seconds(ns: int) -> float:
    return ns / NANOSECONDS
