"""Faults as data: who is struck, when, and how often; and what cannot be is refused with its key."""

from statistics import mean

import pytest

from pflsim.errors import DescriptionError
from pflsim.timing.faults import Faults, Span

S = 1_000_000_000
ACTORS = ["server", "c000", "c001", "c002", "c003"]


def faults(*tables: dict[str, object], seed: int = 1) -> Faults:
    return Faults(tables, ACTORS, seed)


def test_without_faults_nothing_happens() -> None:
    none = faults()
    assert not none
    assert none.crashes("c000") == () and none.crash("c000", 0, 0) is None
    assert not none.is_cut("server", "c000", 0) and none.link_factor("server", "c000", 0) == 1.0
    assert not none.loses("server", "c000", 1, 0) and not none.duplicates("server", "c000", 1, 0)
    assert none.held_back_ns("server", "c000", 1, 0) == 0


def test_a_crash_holds_from_its_start_until_before_its_end() -> None:
    found = faults({"kind": "crash", "clients": ["c001", 2], "at_s": 1.5, "until_s": 3, "keeps_state": False})
    assert found.crashes("c002") == ((Span(3 * S // 2, 3 * S, False), False),)
    assert found.crashes("c000") == ()
    down = [found.crash("c001", at_ns, 0) is not None for at_ns in (0, 3 * S // 2 - 1, 3 * S // 2, 3 * S - 1, 3 * S)]
    assert down == [False, False, True, True, False]


def test_a_fault_dated_in_rounds_does_not_ask_the_time() -> None:
    found = faults({"kind": "crash", "clients": ["c001"], "at_round": 2, "until_round": 4, "keeps_state": True})
    assert [found.crash("c001", 10**15, round) is not None for round in range(5)] == [False, False, True, True, False]


def test_a_crash_without_an_end_is_for_ever() -> None:
    found = faults({"kind": "crash", "clients": ["c001"], "at_s": 1, "keeps_state": True})
    assert found.crash("c001", 10**18, 0) == (Span(S, None, False), True)


def test_a_partition_cuts_between_groups_and_not_within_them() -> None:
    found = faults({"kind": "partition", "groups": [["server", "c000"], ["c001", "c002"]], "at_s": 1, "until_s": 2})
    assert found.is_cut("server", "c001", S) and found.is_cut("c002", "c000", S)
    assert not found.is_cut("server", "c000", S) and not found.is_cut("c001", "c002", S)
    assert not found.is_cut("server", "c003", S), "who is in no group reaches everybody"
    assert not found.is_cut("server", "c001", S - 1) and not found.is_cut("server", "c001", 2 * S)


def test_a_partition_holds_messages_back_whatever_others_are_in_force_elsewhere() -> None:
    elsewhere = {"kind": "partition", "groups": [["c001"], ["c002"]], "at_round": 0}
    here = {"kind": "partition", "groups": [["server"], ["c003"]], "at_s": 1, "until_s": 2}
    found = faults(elsewhere, here, here | {"at_s": 1.5, "until_s": 3})
    assert found.passes_ns("c003", "server", 3 * S // 2) == 3 * S
    assert found.passes_ns("c001", "c002", 0) is None
    assert found.passes_ns("c000", "c001", 0) == 0


def test_an_endless_partition_loses_messages_of_those_alone_whom_it_keeps_apart() -> None:
    found = faults({"kind": "partition", "groups": [["c001"], ["c002", "c003"]]})
    assert found.can_lose([("server", client) for client in ACTORS[1:]], sent_when_cut=True) is None
    assert found.can_lose([("server", "c000"), ("c003", "c001")], sent_when_cut=True) == found.faults[0]
    heals: dict[str, object] = {"kind": "partition", "groups": [["c001"], ["c002"]], "until_s": 1}
    assert faults(heals).can_lose([("c001", "c002")], sent_when_cut=True) is None


def test_others_are_all_that_no_group_names() -> None:
    found = faults({"kind": "partition", "groups": [["others"], ["c001"]]})
    assert all(found.is_cut("c001", actor, 0) for actor in ("server", "c000", "c002", "c003"))
    assert not found.is_cut("server", "c003", 0)


def test_slow_links_multiply_and_concern_both_directions() -> None:
    found = faults(
        {"kind": "slow-link", "clients": ["c001"], "factor": 10, "at_s": 1},
        {"kind": "slow-link", "factor": 2},
    )
    assert found.link_factor("server", "c001", S) == found.link_factor("c001", "server", S) == 20.0
    assert found.link_factor("server", "c001", S - 1) == found.link_factor("c002", "server", S) == 2.0


def test_messages_are_lost_and_duplicated_with_their_probabilities_and_apart() -> None:
    found = faults({"kind": "lose", "probability": 0.2}, {"kind": "duplicate", "probability": 0.3})
    lost = [found.loses("c000", "server", number, 0) for number in range(3000)]
    twice = [found.duplicates("c000", "server", number, 0) for number in range(3000)]
    assert mean(lost) == pytest.approx(0.2, abs=0.03) and mean(twice) == pytest.approx(0.3, abs=0.03)
    assert mean(a and b for a, b in zip(lost, twice, strict=True)) == pytest.approx(0.06, abs=0.02)


def test_what_befalls_a_message_depends_on_the_seed_its_ends_and_its_number_alone() -> None:
    table = {"kind": "lose", "probability": 0.5}
    found = faults(table)
    once = [found.loses("c000", "server", number, 0) for number in range(60)]
    assert [faults(table).loses("c000", "server", number, 9 * S, 4) for number in reversed(range(60))] == once[::-1]
    others = [
        [found.loses("c001", "server", number, 0) for number in range(60)],
        [found.loses("server", "c000", number, 0) for number in range(60)],
        [faults(table, seed=2).loses("c000", "server", number, 0) for number in range(60)],
    ]
    assert all(other != once for other in others)


def test_only_the_messages_of_the_clients_that_are_named_are_struck() -> None:
    found = faults({"kind": "lose", "probability": 1, "clients": ["c001"], "at_round": 1})
    assert found.loses("c001", "server", 1, 0, 1) and found.loses("server", "c001", 1, 0, 1)
    assert not found.loses("c000", "server", 1, 0, 1) and not found.loses("c001", "server", 1, 0, 0)


def test_a_reordered_message_is_held_back_for_up_to_its_delay() -> None:
    found = faults({"kind": "reorder", "probability": 0.5, "delay_s": 2})
    held = [found.held_back_ns("c000", "server", number, 0) for number in range(3000)]
    assert mean(delay > 0 for delay in held) == pytest.approx(0.5, abs=0.03)
    assert max(held) <= 2 * S
    assert mean(delay for delay in held if delay) == pytest.approx(S, rel=0.05)


CRASH: dict[str, object] = {"kind": "crash", "clients": ["c001"], "at_s": 1, "keeps_state": True}


@pytest.mark.parametrize(
    ("table", "key", "says"),
    [
        ({}, "fault.1.kind", "is required; known are crash"),
        ({"kind": "slowlink"}, "fault.1.kind", "did you mean 'slow-link'"),
        ({"kind": "slow-link"}, "fault.1.factor", "is required"),
        ({"kind": "slow-link", "factor": 0.5}, "fault.1.factor", "from 1"),
        ({"kind": "slow-link", "factor": 2, "factr": 1}, "fault.1.factr", "did you mean 'factor'"),
        ({"kind": "lose", "probability": 1.5}, "fault.1.probability", "from 0 to 1"),
        ({"kind": "lose", "probability": float("nan")}, "fault.1.probability", "from 0 to 1"),
        ({"kind": "lose", "probability": 1, "keeps_state": True}, "fault.1.keeps_state", "unknown key"),
        ({"kind": "reorder", "probability": 1}, "fault.1.delay_s", "is required"),
        ({"kind": "reorder", "probability": 1, "delay_s": 0}, "fault.1.delay_s", "from 1e-09"),
        ({"kind": "crash", "clients": ["c001"]}, "fault.1.keeps_state", "is required"),
        (CRASH | {"clients": []}, "fault.1.clients", "at least one"),
        (CRASH | {"clients": ["c001", "c01"]}, "fault.1.clients.1", "did you mean 'c001'"),
        (CRASH | {"clients": ["server"]}, "fault.1.clients.0", "is nobody"),
        (CRASH | {"clients": [4]}, "fault.1.clients.0", "is nobody"),
        (CRASH | {"at_s": -1}, "fault.1.at_s", "from 0"),
        (CRASH | {"until_s": 1}, "fault.1.until_s", "must be after at_s, 1"),
        (CRASH | {"until_round": 3}, "fault.1.at_round", "not in both"),
        (CRASH | {"at_s": None, "at_round": 3, "until_round": 3}, "fault.1.until_round", "must be after at_round, 3"),
        ({"kind": "partition", "groups": [["server"]]}, "fault.1.groups", "at least two"),
        ({"kind": "partition", "groups": [["server"], []]}, "fault.1.groups.1", "nobody in it"),
        ({"kind": "partition", "groups": [["c000"], ["c001", 0]]}, "fault.1.groups.1", "earlier group"),
        ({"kind": "partition", "groups": [["others"], ["others"]]}, "fault.1.groups.1", "earlier group"),
    ],
)
def test_a_wrong_fault_is_refused_with_its_place(table: dict[str, object], key: str, says: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        faults(CRASH, table)
    assert refused.value.key == key
    assert says in refused.value.expected
    assert str(refused.value).endswith(" (the first [[fault]] is fault.0)")
