"""The chaos test without a server: whatever real order messages arrive in, peers give the sequential driver's bits."""

from typing import Any

import pytest

from nodes.sequential import run_sequentially
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description
from tests.test_chaos import AVAILABILITY, FAULTS, LINKS, ORDERS, RUN, shuffled

ENGINES: dict[str, dict[str, Any]] = {
    "sync": {"kind": "sync"},
    "half": {"kind": "neighbours", "active": 0.5},
    "half, old": {"kind": "neighbours", "active": 0.5, "only_active": False},
    "deadline": {"kind": "neighbours", "deadline_s": 0.01},
    "asynchronous": {"kind": "asynchronous"},
    "push": {"kind": "push"},
    "push two": {"kind": "push", "receivers": 2},
    "epidemic": {"kind": "epidemic", "receivers": 2},
    "pairs": {"kind": "pairs"},
}

NARROW = {
    "narrow": {
        "client": {"uplink_mbps": 50.0, "downlink_mbps": {"kind": "lognormal", "mbps": 0.1, "spread": 1.0}},
        "server": {"uplink_mbps": 10.0, "downlink_mbps": 10.0},
        "latency_ms": {"kind": "distances", "radius_km": 2000},
    }
}
"""Models come in more slowly than they leave, so that one waits behind the other."""

TOPOLOGIES: dict[str, dict[str, Any]] = {
    "ring": {"name": "ring"},
    "star": {"name": "star"},
    "full": {"name": "full"},
    "apart": {"name": "matching"},
    "changing": {"name": "random-regular-each-round", "degree": 2},
}


OTHER_GRAPHS: list[dict[str, Any]] = [
    {"name": "line"},
    {"name": "torus"},
    {"name": "regular", "degree": 4},
    {"name": "small-world"},
    {"name": "erdos-renyi", "probability": 0.5},
    {"name": "barabasi-albert"},
    {"name": "exponential"},
    {"name": "one-peer-exponential"},
    {"name": "similar"},
]


def tables_of(engine: str, *, algorithm: str = "dfedu", topology: str = "ring", **settings: Any) -> dict[str, Any]:
    """Six peers that take a while, each piece of work another one."""
    slow = {"devices__flops_per_second": 2e6, "devices__jitter": 0.5, "run__rounds": 5, "run__eval_every": 2}
    graph = {"topology": TOPOLOGIES[topology], "algorithm": {"name": algorithm}}
    return description(run__clients=6, schedule=ENGINES[engine], **graph, **slow, **settings)


def assert_same_in_all_orders(tables: dict[str, Any]) -> None:
    expected = run_sequentially(Study(validate(tables), RUN)).finished()
    for seed in range(ORDERS):
        found = shuffled(tables, seed)
        for said in ("digest", "trace_digest", "simulated_s", "rounds", "stopped"):
            assert found[said] == expected[said], said


@pytest.mark.parametrize("links", LINKS | NARROW)
@pytest.mark.parametrize("engine", ENGINES)
def test_peers_do_not_depend_on_the_real_order_of_messages(engine: str, links: str) -> None:
    tables = tables_of(engine, links=(LINKS | NARROW)[links])
    assert_same_in_all_orders(tables)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_peers_do_not_depend_on_the_real_order_of_messages_on_any_graph(engine: str, topology: str) -> None:
    tables = tables_of(engine, topology=topology, algorithm="dpsgd", links=LINKS["wifi"])
    assert_same_in_all_orders(tables)


@pytest.mark.parametrize("graph", OTHER_GRAPHS, ids=lambda graph: graph["name"])
def test_nor_on_a_graph_of_any_other_kind(graph: dict[str, Any]) -> None:
    for engine in ("sync", "asynchronous"):
        tables = tables_of(engine, links=LINKS["wifi"]) | {"topology": graph}
        tables["run"] = tables["run"] | {"clients": 9}
        assert_same_in_all_orders(tables)


@pytest.mark.parametrize("availability", [kind for kind in AVAILABILITY if kind != "always"])
@pytest.mark.parametrize("engine", ENGINES)
def test_peers_that_come_and_go_do_not_depend_on_the_real_order_of_messages(engine: str, availability: str) -> None:
    tables = tables_of(engine, links=LINKS["wifi"], availability=AVAILABILITY[availability])
    assert_same_in_all_orders(tables)


PEER_FAULTS = {name: faults for name, faults in FAULTS.items() if name != "nothing"}
PEER_FAULTS["partition"] = [{"kind": "partition", "groups": [["others"], ["c000", 2]], "at_s": 0.01, "until_s": 0.05}]
PEER_FAULTS["partition in rounds"] = [
    {"kind": "partition", "groups": [["others"], ["c000", 2]], "at_round": 1, "until_round": 3},
    {"kind": "crash", "clients": [4], "keeps_state": False, "at_round": 2, "until_round": 4},
]


@pytest.mark.parametrize("fault", PEER_FAULTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_peers_with_faults_do_not_depend_on_the_real_order_of_messages(engine: str, fault: str) -> None:
    tables = tables_of(engine, links=LINKS["4g"], fault=PEER_FAULTS[fault])
    assert_same_in_all_orders(tables)


@pytest.mark.parametrize("engine", ["deadline", "asynchronous", "push"])
def test_peers_whose_messages_get_lost_do_not_depend_on_the_real_order_of_messages(engine: str) -> None:
    tables = tables_of(engine, links=LINKS["wifi"], fault=[{"kind": "lose", "probability": 0.3}])
    assert_same_in_all_orders(tables)


@pytest.mark.parametrize("engine", ENGINES)
def test_peers_that_stop_after_some_seconds_do_not_depend_on_the_real_order_of_messages(engine: str) -> None:
    straggler = {"devices__kind": "bimodal", "devices__stragglers": 1, "devices__slowdown": 10.0}
    tables = tables_of(engine, links=LINKS["wifi"], run__stop={"simulated_s": 0.1}, **straggler)
    assert_same_in_all_orders(tables)


def test_a_deadline_is_what_it_takes_where_messages_get_lost() -> None:
    tables = tables_of("sync", fault=[{"kind": "lose", "probability": 0.3}])
    with pytest.raises(Exception, match="deadline_s"):
        Study(validate(tables), RUN)


@pytest.mark.parametrize("engine", ["asynchronous", "pairs", "deadline", "half"])
def test_who_has_not_heard_yet_that_the_run_begins_holds_up_the_others(engine: str) -> None:
    """On narrow links with fast devices the first models are there before the slowest has begun."""
    tables = tables_of(engine, topology="full", algorithm="dpsgd", links=NARROW["narrow"])
    tables = tables | {"devices": tables["devices"] | {"flops_per_second": 1e9}}
    tables = tables | {"run": tables["run"] | {"stop": {"simulated_s": 0.05}}}
    assert_same_in_all_orders(tables)
