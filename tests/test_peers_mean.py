"""What gossip does to the mean of all models (E60), and when peers come to agree."""

from typing import Any

import pytest
import torch

from tests.gossiping import Watch, watched
from tests.test_equivalences import near

METHODS: dict[str, dict[str, Any]] = {
    "gossip": {},
    "dfedu": {"algorithm__eta_r": 0.5, "algorithm__normalised": True, "algorithm__reg_R": "steps"},
}
RING: dict[str, Any] = {"name": "ring"}
GRAPHS: dict[str, dict[str, Any]] = {
    "ring": RING,
    "star": {"name": "star"},
    "random weights": {"name": "erdos-renyi", "probability": 0.7, "weights": "random"},
    "drawn anew each round": {"name": "random-regular-each-round", "degree": 3},
    "matchings": {"name": "matching", "weights": "random"},
}
every_method = pytest.mark.parametrize("method", METHODS)
every_graph = pytest.mark.parametrize("graph", GRAPHS)
KEEPS_THE_MEAN = {"atol": 1e-13, "rtol": 0.0}


def run(monkeypatch: pytest.MonkeyPatch, method: str, schedule: dict[str, Any], **settings: Any) -> Watch:
    given = {"topology": RING, "run__rounds": 8, "training__step_size": 1.0, **METHODS[method], **settings}
    return watched(monkeypatch, method, schedule=schedule, **given)


def keeps_the_mean(watch: Watch) -> bool:
    return torch.allclose(watch.mean, watch.expected_mean, **KEEPS_THE_MEAN)


@every_method
@every_graph
def test_e60_rounds_among_neighbours_keep_the_mean(monkeypatch: pytest.MonkeyPatch, method: str, graph: str) -> None:
    watch = run(monkeypatch, method, {"kind": "sync"}, topology=GRAPHS[graph])
    assert keeps_the_mean(watch)
    assert set(watch.visits.values()) == {8}


@every_method
@every_graph
def test_e60_pairs_keep_the_mean_also_while_peers_work(
    monkeypatch: pytest.MonkeyPatch, method: str, graph: str
) -> None:
    """Both ends move by the same, also where one is in another round than the other and the graph changes."""
    decaying = {"step_size": 1.0, "local_steps": 3, "batch": 10, "schedule": "exponential", "decay": 0.8}
    watch = run(monkeypatch, method, {"kind": "pairs"}, topology=GRAPHS[graph], training=decaying)
    assert keeps_the_mean(watch)
    assert watch.exchanged_at_work > 5


@pytest.mark.parametrize(
    "schedule",
    [{"kind": "epidemic", "receivers": 1}, {"kind": "push"}, {"kind": "asynchronous"}],
    ids=["epidemic", "push", "asynchronous"],
)
def test_e60_epidemics_pushes_and_old_models_do_not_keep_the_mean(
    monkeypatch: pytest.MonkeyPatch, schedule: dict[str, Any]
) -> None:
    """The counter-test."""
    watch = run(monkeypatch, "gossip", schedule)
    assert float((watch.mean - watch.expected_mean).abs().max()) > 1e-3


@every_method
@pytest.mark.parametrize("schedule", ["sync", "pairs", "asynchronous", "push", "epidemic"])
def test_e60_peers_that_only_talk_come_to_agree(monkeypatch: pytest.MonkeyPatch, method: str, schedule: str) -> None:
    """With a step size of 0 nothing is learned; the graph is connected."""
    still: dict[str, Any] = {"algorithm__restless": False, "training__step_size": 0.0, "devices__stragglers": 0}
    if method == "dfedu":  # whose pull has the step size as a factor: here nothing is learned whatever it is
        still["training__step_size"] = 1.0
    few = run(monkeypatch, method, {"kind": schedule}, peers=4, run__rounds=1, **still)
    many = run(monkeypatch, method, {"kind": schedule}, peers=4, run__rounds=40, **still)
    assert few.spread > 0.5
    assert many.spread < 1e-2 * few.spread
    if schedule in ("sync", "pairs"):
        near(many.mean, where_they_start(few))


def where_they_start(watch: Watch) -> torch.Tensor:
    """The mean of all models before the first round."""
    return Watch(watch.peers, [], {}).expected_mean


def test_e60_the_parts_of_a_graph_that_is_not_connected_agree_each_with_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "two.csv").write_text("k,l\n0,1\n1,2\n3,4\n4,5\n")
    graph = {"name": "file", "file": str(tmp_path / "two.csv")}
    watch = run(monkeypatch, "gossip", {"kind": "sync"}, topology=graph, run__rounds=40, algorithm__restless=False)
    assert watch.spread > 0.5
    ends = sorted(float(one[0]) for one in watch.ends)
    assert ends[2] - ends[0] < 1e-4 and ends[5] - ends[3] < 1e-4 and ends[3] - ends[2] > 0.1


@every_method
@pytest.mark.parametrize(("only_active", "keeps"), [(True, True), (False, False)])
def test_the_mean_is_kept_where_only_those_that_take_part_in_a_round_learn_from_each_other(
    monkeypatch: pytest.MonkeyPatch, method: str, only_active: bool, keeps: bool
) -> None:
    schedule = {"kind": "neighbours", "active": 0.5, "only_active": only_active}
    watch = run(monkeypatch, method, schedule, run__rounds=20)
    assert keeps_the_mean(watch) == keeps
    assert 0.3 * 120 < sum(watch.visits.values()) < 0.7 * 120, "half of the peers take part, on average"
    if not keeps:
        assert float((watch.mean - watch.expected_mean).abs().max()) > 1e-3
