"""Faults that are dated in rounds, without a server: rounds are each peer's own, and everybody knows who is cut off."""

from typing import Any

import pytest

from nodes.sequential import FactList, run_sequentially
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description
from tests.test_peers_chaos import ENGINES

RUN = b"8 bytes."
CUT = {"kind": "partition", "groups": [["c000", "c001"], ["others"]], "at_round": 2, "until_round": 4}
DOWN = {"kind": "crash", "clients": ["c002"], "at_round": 1, "until_round": 3}


def played(engine: str, fault: dict[str, Any], **settings: Any) -> tuple[FactList, Study]:
    """Six peers on a ring, six rounds."""
    graph = {"topology": {"name": "ring"}, "algorithm": {"name": "dpsgd"}, "schedule": ENGINES[engine]}
    given = {"run__clients": 6, "run__rounds": 6, "run__eval_every": 0, **graph, **settings}
    study = Study(validate(description(fault=[fault], **given)), RUN)
    return run_sequentially(study), study


def sent(facts: FactList) -> set[tuple[int, str, str]]:
    """The round (from 0), sender and receiver of each model that was sent first, not in answer."""
    rows = [fact[1:] for fact in facts.facts if fact[0] == "sent"]
    return {(round - 1, *ends) for *ends, kind, _, _, round in (row[:6] for row in rows) if kind in ("PUSH", "PAIR")}


def in_ring(number: int) -> list[str]:
    return [f"c{(number + step) % 6:03d}" for step in (-1, 1)]


@pytest.mark.parametrize("engine", ["sync", "asynchronous"])
def test_a_partition_dated_in_rounds_takes_its_edges_out_of_the_graph_of_these_rounds(engine: str) -> None:
    facts, study = played(engine, CUT)
    apart = {("c001", "c002"), ("c002", "c001"), ("c000", "c005"), ("c005", "c000")}
    edges = {(name, other) for number, name in enumerate(study.names) for other in in_ring(number)}
    expected = {(round, *edge) for round in range(6) for edge in edges if not (2 <= round < 4 and edge in apart)}
    assert sent(facts) == expected


def test_who_is_down_in_a_round_sits_it_out_and_nobody_waits_for_it() -> None:
    facts, study = played("sync", DOWN | {"keeps_state": True})
    expected = {
        (round, name, other)
        for round in range(6)
        for number, name in enumerate(study.names)
        for other in in_ring(number)
        if not (1 <= round < 3 and "c002" in (name, other))
    }
    assert sent(facts) == expected
    worked = [fact for fact in facts.facts if fact[:3] == ("spans", "c002", "compute")]
    assert len(worked) == 4


def test_no_half_of_a_round_is_played_by_who_does_not_take_part() -> None:
    """Neither does who sits out a round get a model: it would cost bytes that nobody learns from."""
    facts, study = played("half", DOWN | {"keeps_state": True})
    rounds = {
        (round, name): study.appointments.is_active(number, round)
        for round in range(6)
        for number, name in enumerate(study.names)
    }
    expected = {
        (round, name, other)
        for number, name in enumerate(study.names)
        for other in in_ring(number)
        for round in range(6)
        if rounds[round, name] and rounds[round, other]
    }
    assert 0 < len(expected) < 72
    assert sent(facts) == expected


@pytest.mark.parametrize("engine", ["asynchronous", "push", "pairs", "sync"])
def test_a_peer_that_loses_its_state_in_a_round_begins_again_from_the_start(engine: str) -> None:
    """With a step size of 0 it can have but its start, and what it learns from others: here, nothing."""
    apart = {"topology": {"name": "erdos-renyi", "probability": 0.0}}
    learned, _ = played(engine, DOWN | {"keeps_state": True}, **apart)
    forgot, _ = played(engine, DOWN | {"keeps_state": False}, **apart)
    fewer, _ = played(engine, DOWN | {"keeps_state": True, "at_round": 0, "until_round": 1}, **apart)
    digests = [facts.finished()["digest"] for facts in (learned, forgot, fewer)]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("fault", [CUT, DOWN | {"keeps_state": True}], ids=["cut", "down"])
@pytest.mark.parametrize("engine", ENGINES)
def test_an_endless_one_ends_no_run(engine: str, fault: dict[str, Any]) -> None:
    endless = {name: value for name, value in fault.items() if name != "until_round"}
    facts, _ = played(engine, endless)
    assert facts.finished()["rounds"] == 6


def test_a_farewell_belongs_to_no_round() -> None:
    """The slow one of two stops in the round in which they are apart, while the quick one waits for its next."""
    one_is_slow = {"devices__kind": "bimodal", "devices__stragglers": 1, "devices__slowdown": 10.0}
    speed = {"devices__flops_per_second": 2e6, "topology": {"name": "full"}, "run__clients": 2}
    apart = CUT | {"groups": [["c000"], ["others"]], "at_round": 1, "until_round": 2}
    whole, _ = played("sync", apart, **speed, **one_is_slow)
    ends = {fact[1:3]: fact[4] for fact in whole.facts if fact[0] == "steps"}
    slow_ends_ns = max(ends[2, 0], ends[2, 1])
    facts, _ = played("sync", apart, **speed, **one_is_slow, run__stop={"simulated_s": slow_ends_ns / 1e9})
    assert facts.finished()["rounds"] == 2
