"""Whatever settings come together, a run gives the sequential driver's bits in any order of arrival, or is refused.

Each number draws a study: schedule, graph, links, availability, faults, stop and seed. A study that fails, as when
nobody ever stays long enough, must fail in every order (for which of those that it could be, differs); nobody may ever
wait for ever. `PFLSIM_STUDIES` says how many are drawn.
"""

import os
import random
from functools import partial
from typing import Any

import pytest

from nodes.sequential import run_sequentially
from pflsim.errors import DescriptionError, RunFailed
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description
from tests.test_chaos import AVAILABILITY, LINKS, RUN, shuffled
from tests.test_chaos import ENGINES as SERVER_ENGINES
from tests.test_peers_chaos import ENGINES as PEER_ENGINES
from tests.test_peers_chaos import NARROW, TOPOLOGIES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STUDIES = int(os.environ.get("PFLSIM_STUDIES", "60"))
ORDERS = 2
CLIENTS = 6
SAMPLINGS: list[Any] = [
    "all",
    "uniform",
    "by-samples",
    {"kind": "groups", "groups": 2, "grouping": "by-label"},
    {"kind": "tiers", "tiers": 2},
    {"kind": "power-of-choice", "candidates": 4},
]
METHODS = ["fedavg", "fedprox", "scaffold", "ditto", "pfedme", "fedu", "stratified", "apfl", "ifca", "sfl", "local"]
PEER_METHODS = ["dfedu", "dpsgd", "dditto", "dpfedme", "dfedper"]
DATES: list[dict[str, Any]] = [
    {},
    {"at_s": 0.01, "until_s": 0.08},
    {"at_s": 0.02, "until_s": 0.03},
    {"at_round": 1, "until_round": 2},
    {"at_round": 2, "until_round": 4},
]


def drawn(number: int) -> dict[str, Any]:
    """The tables of study `number`; those with even numbers have a server."""
    draw = random.Random(number)
    chosen = _with_server(draw) if number % 2 == 0 else _without_server(draw)
    stop = draw.choice([{}, {}, {"simulated_s": draw.choice([0.02, 0.1])}])
    return description(
        **chosen,
        run__clients=CLIENTS,
        run__rounds=draw.choice([2, 5]),
        run__seed=draw.randrange(100),
        run__stop=stop,
        run__eval_every=draw.choice([0, 1, 2]),
        links=draw.choice([*LINKS.values(), *NARROW.values(), {"preset": "4g", "slow_start": True}]),
        availability=draw.choice([*AVAILABILITY.values(), "always"]),
        fault=[_fault(draw) for _ in range(draw.choice([0, 1, 1, 2, 3]))],
        devices__flops_per_second=draw.choice([2e5, 2e6, 2e7]),
        devices__jitter=draw.choice([0.0, 0.5]),
        devices__slowdown=draw.choice([2.0, 10.0]),
    )


def _with_server(draw: random.Random) -> dict[str, Any]:
    schedule = dict(draw.choice(list(SERVER_ENGINES.values())))
    if "cohort" in schedule and draw.random() < 0.5:
        schedule["sampling"] = draw.choice(SAMPLINGS)
    if "deadline_s" in schedule:
        schedule["deadline_s"] = draw.choice([0.002, 0.01, 0.05])
    if schedule["kind"] in ("fedasync", "fedbuff") and draw.random() < 0.5:
        schedule |= {"timeout_s": draw.choice([0.01, 0.1]), "concurrency": draw.choice([1, 3, 6])}
    return {"schedule": schedule, "algorithm": {"name": draw.choice(METHODS)}}


def _without_server(draw: random.Random) -> dict[str, Any]:
    schedule = dict(draw.choice(list(PEER_ENGINES.values())))
    if "deadline_s" in schedule:
        schedule["deadline_s"] = draw.choice([0.001, 0.01, 0.05])
    graph = draw.choice([*TOPOLOGIES.values(), {"name": "erdos-renyi", "probability": 0.4}])
    return {"schedule": schedule, "algorithm": {"name": draw.choice(PEER_METHODS)}, "topology": graph}


def _fault(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(["crash", "partition", "slow-link", "lose", "duplicate", "reorder"])
    own: dict[str, Any] = {
        "crash": {"clients": draw.choice([["c001"], [2, "c003"]]), "keeps_state": draw.random() < 0.5},
        "partition": {"groups": [["others"], draw.choice([["c001", 2], ["c000"]])]},
        "slow-link": {"factor": 10.0, "clients": [4]},
        "lose": {"probability": 0.1},
        "duplicate": {"probability": draw.choice([0.1, 0.5, 1.0])},
        "reorder": {"probability": 0.5, "delay_s": 0.02},
    }[kind]
    return {"kind": kind, **own, **draw.choice(DATES)}


def outcome(play: Any) -> dict[str, Any]:
    """What a run tells at its end, or that it failed."""
    try:
        told = play()
    except RunFailed as problem:
        assert "waits for somebody else" not in str(problem)
        return {"failed": True}
    return {said: told[said] for said in ("digest", "trace_digest", "simulated_s", "rounds", "stopped")}


@pytest.mark.parametrize("number", range(STUDIES))
def test_any_study_is_the_same_in_any_order_or_is_refused(number: int) -> None:
    tables = drawn(number)
    try:
        study = Study(validate(tables), RUN)
    except DescriptionError as refused:
        assert refused.expected and refused.key
        return
    expected = outcome(lambda: run_sequentially(study).finished())
    for order in range(ORDERS):
        assert outcome(partial(shuffled, tables, order)) == expected
