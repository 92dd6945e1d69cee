"""Pictures of a report stay small however large a run was, and say what they leave out."""

import numpy as np
import plotly.graph_objects
import pytest

from pflsim.record.history import History, Period, Span, Transit
from pflsim.report import heat, holdings, network, times
from pflsim.report.picture import Picture

NAMES = tuple(f"c{number:03d}" for number in range(200))


def points(picture: Picture) -> int:
    """Numbers that travel for a picture."""
    found = 0
    for trace in picture.traces:
        found += len(trace["x"]) + sum(map(len, trace.get("z", [])))
    plotly.graph_objects.Figure(picture.figure())
    return found


def history(clients: int, rounds: int) -> History:
    """Every client computes for 5 ns in each round of 10 ns, and answers."""
    spans = [
        Span(name, "compute", 10 * one, 10 * one + 5, one + 1) for name in NAMES[:clients] for one in range(rounds)
    ]
    transits = [
        Transit(name, "server", "RESULT", one + 1, one + 1, 10 * one + 5, 10 * one + 9, 100, 10)
        for name in NAMES[:clients]
        for one in range(rounds)
    ]
    return History([Period(one + 1, 10 * one, 10 * one + 10) for one in range(rounds)], spans, transits)


def test_of_many_actors_the_server_those_waited_for_and_some_others_are_shown() -> None:
    actors = ["server", *NAMES]
    found = times.chosen(actors, ["c150", "c007"])
    assert len(found) == 41 and {"server", "c150", "c007"} <= set(found)
    assert found == sorted(found, key=actors.index)
    assert times.chosen(actors[:41], []) == actors[:41]


def test_a_long_timeline_ends_with_the_last_round_that_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    told = history(4, 50)
    windows = [(period.start_ns, period.end_ns) for period in told.rounds]
    whole = times.timeline(told, windows, windows[0], [])
    assert whole is not None and "the run to" not in whole.caption
    assert points(whole) == 3 * 2 * 4 * 50
    monkeypatch.setattr(times, "_MOST_PIECES", 100)
    cut = times.timeline(told, windows, windows[0], [])
    assert cut is not None and "It goes to 120 ns, the run to 500 ns." in cut.caption
    assert points(cut) == 3 * 2 * 4 * 12


def test_many_clients_and_classes_are_a_heat_map_instead_of_bubbles() -> None:
    labels, counts = [list(range(20))] * 200, [[1, *[2] * 19]] * 200
    picture = holdings.partition(NAMES, labels, counts)
    assert picture is not None and picture.traces[0]["type"] == "heatmap"
    assert picture.traces[0]["z"][0] == [1] * 200 and picture.traces[0]["z"][19] == [2] * 200
    few = holdings.partition(NAMES[:2], [[0], [0, 3]], [[4], [1, 16]])
    assert few is not None and few.traces[0]["customdata"] == [4, 1, 16]
    assert few.traces[0]["marker"]["size"] == [13.0, 6.5, 26.0]  # areas as the counts
    assert holdings.partition(NAMES[:2], [[], []], [[], []]) is None


def test_many_rounds_are_counted_together() -> None:
    picture = heat.participation([(round, 1) for round in range(1, 1001)], NAMES[:3], 1000)
    (trace,) = picture.traces
    assert trace["x"][:3] == [1, 8, 15] and trace["z"][1][:2] == [7, 7] and trace["z"][1][-1] == 1000 % 7
    assert trace["z"][0] == [None] * 143 and points(picture) == 143 + 3 * 143


def test_clusters_keep_their_colour_and_who_is_in_none_has_none() -> None:
    picture = heat.clusters({1: [-1, 4, 4], 2: [9, 4, 9]}, NAMES[:3])
    (trace,) = picture.traces
    assert trace["y"] == ["c001", "c000", "c002"] and trace["z"] == [[0, 0], [None, 1], [0, 1]]
    assert trace["text"][1] == ["none", "9"] and [key.name for key in picture.legend] == ["cluster 4", "cluster 9"]
    points(picture)


def test_a_dense_graph_shows_its_busiest_edges() -> None:
    weights = 1.0 - np.eye(100)
    sent = np.arange(10_000).reshape(100, 100)
    picture = network.graph(weights, np.full(100, np.nan), "accuracy", "%", sent, NAMES[:100])
    assert "The 4000 busiest of 4950 edges." in picture.caption
    assert sum(len(trace["x"]) for trace in picture.traces[:-1]) == 3 * 4000
    assert network.bytes_heat(np.ones((200, 200)), NAMES) is None


def test_pairs_of_which_nothing_is_known_are_empty() -> None:
    ages = np.array([[np.nan, 2.0], [1.0, np.nan]])
    picture = network.edge_heat(ages, NAMES[:2], "mean age", "s", ("peer", "neighbour"))
    assert picture is not None and picture.traces[0]["z"] == [[None, 2], [1, None]]
    assert network.edge_heat(np.zeros((2, 2)), NAMES[:2], "mean age", "s", ("peer", "neighbour")) is None
