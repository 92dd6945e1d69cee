"""A slow peer slows nobody but those that wait for it."""

from collections import Counter
from typing import Any

import pytest

from nodes.sequential import run_sequentially
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description

PEERS = 8


def steps(schedule: str, **settings: Any) -> tuple[list[int], int]:
    """How many rounds each of the peers on a ring has done after two seconds, and which of them is ten times slower.

    All have equally much data, so that the others are equally fast.
    """
    tables = description(
        topology={"name": "ring"},
        schedule={"kind": schedule},
        algorithm={"name": "dpsgd"},
        run__clients=PEERS,
        run__rounds=10_000,
        run__stop={"simulated_s": 2.0},
        run__eval_every=0,
        data={"name": "synthetic", "samples": 400, "partition": {"name": "iid"}},
        devices__flops_per_second=1e6,
        **settings,
    )
    study = Study(validate(tables), b"tried")
    done = Counter(fact[2] for fact in run_sequentially(study).facts if fact[0] == "steps")
    slow = min(range(PEERS), key=lambda peer: study.devices.device(study.names[peer]).flops_per_second)
    return [done[peer] for peer in range(PEERS)], slow


def by_distance(done: list[int], slow: int) -> dict[int, list[int]]:
    """The rounds of the peers at each distance from the slow one on the ring."""
    return {away: [done[(slow - away) % PEERS], done[(slow + away) % PEERS]] for away in range(1, PEERS // 2 + 1)}


@pytest.mark.parametrize("schedule", ["asynchronous", "push", "pairs"])
def test_with_one_peer_ten_times_slower_the_others_do_at_least_nine_steps_for_its_one(schedule: str) -> None:
    """At every distance from it, its neighbours included. Pairs wait for an answer, 4 ms of wire, after each step."""
    done, slow = steps(schedule, links="ideal" if schedule == "pairs" else "wifi")
    assert done[slow] >= 10
    for away, both in by_distance(done, slow).items():
        assert min(both) >= 9 * done[slow], (away, both, done[slow])


def test_in_rounds_among_neighbours_a_slow_peer_holds_up_everybody_the_later_the_farther_they_are() -> None:
    """The counter-test: at distance k a peer is at most k rounds ahead."""
    done, slow = steps("sync")
    for away, both in by_distance(done, slow).items():
        assert max(both) <= done[slow] + away + 1, (away, both, done[slow])
    assert done[slow] >= 10
