"""The simulated timeline as a file in Chrome's trace-event form, which opens in Perfetto and in chrome://tracing.

One track per actor: what it did, and when something of a client was under way; an arrow for each message, from where
it left to where it arrived. Times are simulated; the format counts in microseconds, so nanoseconds are thousandths.
(The form: "Trace Event Format", the Chromium project; phases M, X, s and f.)
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pflsim.record.history import SERVER, History

PROCESS = 1
_US = 1000


class _Slice(NamedTuple):
    start_ns: int
    end_ns: int
    name: str
    round: int


def trace_events(history: History, classes: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The events: names of the tracks (with their `classes`), slices, and the two ends of each message's arrow."""
    tracks = {actor: number for number, actor in enumerate(history.actors)}
    events: list[dict[str, Any]] = [_named("process_name", 0, "simulated time")]
    for actor, track in tracks.items():
        kind = (classes or {}).get(actor)
        events.append(_named("thread_name", track, f"{actor} ({kind})" if kind else actor))
        events.append(
            {"ph": "M", "pid": PROCESS, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}
        )
    for actor, track in tracks.items():
        for one in _slices(actor, history):
            times = {"ts": one.start_ns / _US, "dur": (one.end_ns - one.start_ns) / _US}
            about = {"name": one.name, "cat": "span", "args": {"round": one.round}}
            events.append({"ph": "X", "pid": PROCESS, "tid": track} | times | about)
    return [*events, *_arrows(history, tracks)]


def write_trace(path: Path | str, history: History, classes: Mapping[str, str] | None = None) -> None:
    """Write the trace of a run to `path`."""
    content = {"displayTimeUnit": "ms", "traceEvents": trace_events(history, classes)}
    Path(path).write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": PROCESS, "tid": track, "name": what, "args": {"name": name}}


def _slices(actor: str, history: History) -> Iterator[_Slice]:
    """What fills an actor's track, one after another: a track whose slices overlap is not shown as it is."""
    own = [_Slice(span.start_ns, span.end_ns, span.what, span.round) for span in history.spans.get(actor, [])]
    if actor != SERVER:  # the server sends and takes many at once, while it waits
        for one in history.transits():
            if one.sender == actor:
                own.append(_Slice(one.departure_ns, one.arrival_ns, f"sends {one.kind}", one.round))
            elif one.receiver == actor:
                own.append(_Slice(one.departure_ns, one.arrival_ns, f"is sent {one.kind}", one.round))
    until_ns = 0
    for piece in sorted(own):
        start_ns = max(piece.start_ns, until_ns)
        if piece.end_ns > start_ns:
            yield piece._replace(start_ns=start_ns)
            until_ns = piece.end_ns


def _arrows(history: History, tracks: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for number, one in enumerate(history.transits(), start=1):
        common = {"pid": PROCESS, "name": one.kind, "cat": "message", "id": number}
        about = {"round": one.round, "payload_bytes": one.payload_bytes}
        yield common | {"ph": "s", "tid": tracks[one.sender], "ts": one.departure_ns / _US, "args": about}
        yield common | {"ph": "f", "bp": "e", "tid": tracks[one.receiver], "ts": one.arrival_ns / _US, "args": about}
