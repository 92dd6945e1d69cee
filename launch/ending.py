"""How a run ends: what its summary says that the record does not, and accidents of the system in words."""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import zmq

from launch.recorder import Recorder
from launch.supervision import Supervision
from pflsim.errors import RunFailed


@contextmanager
def in_words(*, unless: bool = False) -> Iterator[None]:
    """What the system refuses in the with-block becomes RunFailed; `unless` the run has failed already: that counts."""
    try:
        yield
    except (OSError, sqlite3.Error, zmq.ZMQError, RunFailed) as problem:
        if unless:
            return
        if isinstance(problem, RunFailed):
            raise
        raise _named(problem) from problem


def _named(problem: Exception) -> RunFailed:
    if isinstance(problem, sqlite3.Error):
        return RunFailed("recorder", f"record.db cannot be written: {problem}")
    if isinstance(problem, OSError):
        where = f"{problem.filename}: " if problem.filename else ""
        return RunFailed("launcher", f"{where}{problem.strerror or problem}")
    return RunFailed("launcher", str(problem))


def facts_of_run(
    status: str, plan: Mapping[str, Any], recorder: Recorder, supervision: Supervision, started_s: float
) -> dict[str, Any]:
    """What `pflsim.record.report.summarise` wants to know beside the record."""
    finished = recorder.finished or {}
    return {
        "status": status,
        **plan["facts"],
        "rounds": finished.get("rounds", 0),
        **({"most_rounds": finished["most_rounds"]} if "most_rounds" in finished else {}),
        "stopped": finished.get("stopped", status),
        "rejected_uploads": recorder.rejected,
        "warnings": plan["warnings"],
        "time": {
            "simulated_s": finished.get("simulated_s"),
            "wall_s": time.monotonic() - started_s,
            "cpu_s": supervision.processor_s,
            "setup_s": recorder.setup_s,
            "host_clock_at_start_s": started_s,
        },
        "memory": {"peak_pss_bytes": supervision.memory.peak_bytes},
        "digest": finished.get("digest"),
        "trace_digest": finished.get("trace_digest"),
    }
