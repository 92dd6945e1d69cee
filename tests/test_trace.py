"""The trace that Perfetto opens: its structure, event by event."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pflsim.record.history import History
from pflsim.record.trace import trace_events, write_trace
from tests.launching import description
from tests.recorded import KINDS, SMALL, record_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_has_a_track_per_actor_no_slice_overlaps_and_every_message_is_an_arrow(
    kind: str, tmp_path: Path
) -> None:
    with record_of(tmp_path / "record.db", description(**(SMALL | KINDS[kind]))) as reader:
        history = History.read(reader)
        write_trace(tmp_path / "trace.json", history, {"c001": "slow"})
        (arrived,) = reader.query("SELECT COUNT(*) FROM received WHERE channel = 'data'")[0]
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["displayTimeUnit"] == "ms"
    events: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        assert event["pid"] == 1 and isinstance(event["tid"], int) and event["name"]
        events[event["ph"]].append(event)
    assert sorted(events) == ["M", "X", "f", "s"]

    names = {event["tid"]: event["args"]["name"] for event in events["M"] if event["name"] == "thread_name"}
    assert list(names.values()) == ["server", "c000", "c001 (slow)", "c002", "c003", "c004", "c005"]

    tracks: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events["X"]:
        assert event["dur"] > 0 and event["ts"] >= 0
        tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in tracks.values():
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(slices))

    starts, ends = ({event["id"]: event for event in events[phase]} for phase in "sf")
    assert starts.keys() == ends.keys() and len(starts) == arrived == len(events["s"])
    for number, start in starts.items():
        assert start["name"] == ends[number]["name"] and start["ts"] < ends[number]["ts"]
        assert {"server"} < {names[start["tid"]], names[ends[number]["tid"]]}
        assert ends[number]["bp"] == "e"


def test_times_in_a_trace_are_simulated_microseconds(tmp_path: Path) -> None:
    with record_of(tmp_path / "record.db", description(run__rounds=1)) as reader:
        history = History.read(reader)
    compute = next(event for event in trace_events(history) if event["name"] == "compute" and event["tid"] == 1)
    (span,) = [one for one in history.spans["c000"] if one.what == "compute"]
    assert (compute["ts"], compute["dur"]) == (span.start_ns / 1000, (span.end_ns - span.start_ns) / 1000)
