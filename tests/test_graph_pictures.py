"""Pictures of graphs and of bytes per pair: what is in them, from arrays and from records."""

from pathlib import Path

import numpy as np
import pytest

from pflsim.record.database import Reader, Record
from pflsim.record.graph import (
    bytes_per_pair,
    edges_figure,
    graph_figure,
    positions,
    save_edges_picture,
    save_graph_picture,
)
from tests.launching import description
from tests.recorded import record_of

LINE = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]])
SENT = np.array([[0, 3000, 0], [1000, 0, 500], [0, 500, 0]])
NAMES = ("c000", "c001", "c002")


def sent(sender: str, receiver: str, number: int, payload_bytes: int, channel: str = "data") -> tuple[object, ...]:
    return "sent", sender, receiver, "PUSH", channel, number, 1, payload_bytes, 40, 7, 0


def reader_of(path: Path, facts: list[tuple[object, ...]]) -> Reader:
    with Record(path) as record:
        record.write(facts)
    return Reader(path)


def ring(nodes: int) -> np.ndarray:
    return np.roll(np.eye(nodes), 1, axis=0) + np.roll(np.eye(nodes), -1, axis=0)


def texts(figure) -> list[str]:
    return [text.get_text() for panel in figure.axes for text in panel.texts]


def test_bytes_per_pair_are_payload_and_headers_of_what_is_charged(tmp_path: Path) -> None:
    facts = [
        sent("c000", "c001", 1, 1000),
        sent("c000", "c001", 2, 1000),
        sent("c001", "c000", 1, 500),
        sent("c002", "c001", 1, 9000, "evaluation"),
        sent("c002", "server", 1, 9000),
    ]
    with reader_of(tmp_path / "record.db", facts) as reader:
        assert bytes_per_pair(reader, NAMES).tolist() == [[0, 2080, 0], [540, 0, 0], [0, 0, 0]]
        assert bytes_per_pair(reader, ("c002", "server")).tolist() == [[0, 9040], [0, 0]]


def test_bytes_per_pair_of_a_run_are_what_its_messages_weighed(tmp_path: Path) -> None:
    with record_of(tmp_path / "record.db", description(run__clients=3, run__rounds=2)) as reader:
        found = bytes_per_pair(reader, ("server", *NAMES))
        rows = reader.rows("sent", channel="data")
        assert found.sum() == sum(row["payload_bytes"] + row["header_bytes"] for row in rows) > 0
    assert (found[0, 1:] > 0).all() and (found[1:, 0] > 0).all() and not found[1:, 1:].any()


def test_a_ring_lies_on_a_circle_and_components_do_not_overlap() -> None:
    radii = np.hypot(*(positions(ring(8)) - positions(ring(8)).mean(axis=0)).T)
    np.testing.assert_allclose(radii, radii[0], rtol=1e-3)
    apart = np.zeros((13, 13))
    apart[:8, :8], apart[8:12, 8:12] = ring(8), ring(4)
    placed = positions(apart)
    distances = np.hypot(*(placed[:, None] - placed[None]).transpose(2, 0, 1))
    large, small = placed[:8].mean(axis=0), placed[8:12].mean(axis=0)
    assert np.hypot(*(large - small)) > (distances[0, :8].max() + distances[8, 8:12].max()) / 2
    assert distances[12, :12].min() > 1.0


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_tiny_graphs_are_drawn_too(nodes: int) -> None:
    weights = 1.0 - np.eye(nodes)
    assert positions(weights).shape == (nodes, 2)
    figure = graph_figure(weights, np.full(nodes, 0.5), "accuracy", weights.astype(int))
    assert texts(figure) == [str(node) for node in range(nodes)]
    edges_figure(weights.astype(int))


def test_the_graph_names_its_nodes_and_shows_the_bytes_both_ways_on_its_edges() -> None:
    figure = graph_figure(LINE, np.array([90.0, np.nan, 80.0]), "accuracy, %", SENT, NAMES, "dfedu")
    figure.canvas.draw()  # only now nodes have their colours
    panel = figure.axes[0]
    assert texts(figure) == list(NAMES)
    lines, nodes = panel.collections
    assert len(lines.get_segments()) == 2
    dark = [colour[0] for colour in lines.get_edgecolor()]
    assert dark[0] > dark[1], "the edge with 4000 bytes is drawn last, and darker than that with 1000"
    assert nodes.get_facecolor()[1].tolist() == [1.0, 1.0, 1.0, 1.0]
    labels = [axes.get_ylabel() for axes in figure.axes[1:]]
    assert labels == ["edge: sent both ways, kB", "node: accuracy, % (white: none)"]


def test_many_nodes_are_named_shortly_and_very_many_not_at_all() -> None:
    names = [f"c{k:03d}" for k in range(70)]
    assert texts(graph_figure(ring(20), np.arange(20), "waited, s", None, names[:20])) == [n[2:] for n in names[:20]]
    assert texts(graph_figure(ring(70), np.arange(70), "waited, s", None, names)) == []


def test_a_graph_without_bytes_or_values_has_no_scale_for_them() -> None:
    figure = graph_figure(LINE, np.full(3, np.nan), "accuracy, %", np.zeros((3, 3), dtype=int))
    assert len(figure.axes) == 1


def test_the_heat_map_leaves_white_what_sent_nothing_and_writes_the_numbers_of_few() -> None:
    figure = edges_figure(SENT, NAMES)
    shown = figure.axes[0].images[0].get_array()
    assert shown.mask.tolist() == (SENT == 0).tolist()
    assert shown.max() == 3.0
    assert texts(figure) == ["3", "1", "0.5", "0.5"]
    assert figure.axes[1].get_ylabel() == "sent, kB (white: nothing)"
    large = edges_figure(ring(200).astype(int) * 10**6)
    assert [label.get_text() for label in large.axes[0].get_yticklabels()][:3] == ["0", "5", "10"]
    assert texts(large) == []


def test_equal_arrays_make_equal_pictures(tmp_path: Path) -> None:
    files = []
    for stem in ("one", "two"):
        files += [
            save_graph_picture(tmp_path / f"graph-{stem}", LINE, np.array([1.0, 2.0, 3.0]), "waited, s", SENT, NAMES),
            save_edges_picture(tmp_path / f"edges-{stem}", SENT, NAMES),
        ]
    for one, two in zip(files[:2], files[2:], strict=True):
        assert [path.suffix for path in one] == [".png", ".svg"]
        assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))
