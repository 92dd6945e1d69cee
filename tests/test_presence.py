"""Clients that leave and return: what they lose and keep, what is charged, and what the server does meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from nodes.sequential import FactList, run_sequentially
from pflsim.errors import DescriptionError, RunFailed
from pflsim.record.absence import absences
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description

RUN = b"8 bytes."
S = 1_000_000_000
LINE = {
    "client": {"uplink_mbps": 0.8, "downlink_mbps": 0.8},  # 0.1 byte a microsecond
    "server": {"uplink_mbps": 800.0, "downlink_mbps": 800.0},
    "latency_ms": 1.0,
}
ALWAYS = "0,1000000"


def played(tmp_path: Path, away: dict[str, list[str]] | None = None, **settings: Any) -> FactList:
    """Three clients in two rounds on a thin line; `away` gives a client's stretches, the others are always there."""
    rows = [
        f"{client},{stretch}" for client in ("c000", "c001", "c002") for stretch in (away or {}).get(client, [ALWAYS])
    ]
    file = tmp_path / "there.csv"
    file.write_text("\n".join(["client,from_s,to_s", *rows]))
    common = {"devices": "phone", "links": LINE, "run__clients": 3, "run__rounds": 2}
    common["availability"] = {"kind": "trace", "file": str(file)}
    return run_sequentially(Study(validate(description(**(common | settings))), RUN))


def facts(told: FactList, table: str, **where: int | str) -> list[tuple[Any, ...]]:
    """The facts of a table, those where the columns at these places (p1=..., p2=...) have these values."""
    found = [fact for fact in told.facts if fact[0] == table]
    return [fact for fact in found if all(fact[int(place[1:])] == value for place, value in where.items())]


def spans(told: FactList, actor: str) -> list[tuple[str, int, int]]:
    return [(fact[2], fact[3], fact[4]) for fact in facts(told, "spans", p1=actor) if fact[2] != "wait"]


def rounds(told: FactList) -> list[tuple[Any, ...]]:
    """(cohort, answers, rejected, gone) of each round."""
    return [fact[5:9] for fact in facts(told, "rounds")]


def test_who_is_there_throughout_makes_the_run_that_nobody_left(tmp_path: Path) -> None:
    traced, plain = played(tmp_path), played(tmp_path, availability="always")
    for said in ("digest", "trace_digest", "simulated_s"):
        assert traced.finished()[said] == plain.finished()[said]


def test_a_client_that_is_away_is_not_asked(tmp_path: Path) -> None:
    told = played(tmp_path, {"c001": ["500,600"]})
    assert rounds(told) == [("[0, 2]", 2, 0, 0), ("[0, 2]", 2, 0, 0)]


def test_nobody_there_lets_the_server_wait_for_the_first_to_return(tmp_path: Path) -> None:
    told = played(tmp_path, {"c000": ["700,900"], "c001": ["500,600"], "c002": ["500.5,600"]})
    assert spans(told, "server")[0] == ("idle", 0, 500 * S)
    assert rounds(told)[0] == ("[1]", 1, 0, 0)


def test_work_that_reaches_a_client_which_has_just_left_waits_for_its_return(tmp_path: Path) -> None:
    """The message is under way for 1 ms and more; the client leaves after 0.5 ms."""
    told = played(tmp_path, {"c001": ["0,0.0005", "5,600"]})
    (what, _, back_ns), (next_, began_ns, _), *_ = spans(told, "c001")
    assert (what, next_, back_ns, began_ns) == ("offline", "compute", 5 * S, 5 * S)
    assert rounds(told)[0] == ("[0, 1, 2]", 3, 0, 0)


SLOW = {"devices": {"kind": "constant", "flops_per_second": 2e6, "server_flops_per_second": 1e12}}


def test_a_client_that_leaves_during_its_work_loses_it_and_says_so_when_it_is_back(tmp_path: Path) -> None:
    whole = played(tmp_path, **SLOW)
    began, ended = next(span[1:] for span in spans(whole, "c001"))
    leaves_s = (began + ended) / 2e9
    told = played(tmp_path, {"c001": [f"0,{leaves_s}", "8,600"]}, **SLOW)
    assert spans(told, "c001")[:3] == [
        ("lost work", began, round(leaves_s * S)),
        ("offline", round(leaves_s * S), 8 * S),
        ("compute", *spans(told, "c001")[2][1:]),
    ]
    assert rounds(told) == [("[0, 1, 2]", 2, 0, 1), ("[0, 1, 2]", 3, 0, 0)]
    (event,) = facts(told, "events", p2="gone")
    assert event[1] == "c001" and event[4] > 8 * S
    assert not facts(told, "sent", p1="c001", p3="RESULT", p6=1)


def test_what_a_client_had_sent_when_it_left_is_charged_and_its_state_is_as_before_the_work(tmp_path: Path) -> None:
    whole = played(tmp_path, algorithm={"name": "scaffold"})
    sent_ns = next(fact[10] for fact in facts(whole, "sent", p1="c001", p3="RESULT"))
    (size,) = {fact[7] + fact[8] for fact in facts(whole, "sent", p1="c001", p3="RESULT")}
    half_s = (sent_ns + size * 10_000 / 2) / 1e9  # at 0.1 byte a microsecond; framing makes it somewhat less than half
    told = played(tmp_path, {"c001": [f"0,{half_s}", "50,600"]}, algorithm={"name": "scaffold"}, run__rounds=1)
    cut = next(fact for fact in facts(told, "sent", p1="c001", p3="RESULT"))
    assert 0.4 * size < cut[7] + cut[8] < 0.5 * size
    (dropped,) = facts(told, "dropped", p1="server")
    assert dropped[2] == "c001 left while it was sending"
    assert ("lost send", sent_ns, round(half_s * S)) in spans(told, "c001")
    assert rounds(told) == [("[0, 1, 2]", 2, 0, 1)]


def test_a_crash_costs_the_private_state_unless_it_is_kept(tmp_path: Path) -> None:
    """Ditto's own models; between the rounds client 1 is down."""

    def crashed(keeps_state: bool) -> FactList:
        crash = {"kind": "crash", "clients": [1], "at_round": 1, "until_round": 2, "keeps_state": keeps_state}
        return played(tmp_path, algorithm={"name": "ditto"}, fault=[crash], run__rounds=3, run__eval_every=3)

    kept, lost = crashed(True), crashed(False)
    assert [cohort for cohort, *_ in rounds(kept)] == ["[0, 1, 2]", "[0, 2]", "[0, 1, 2]"]
    models = [[fact[3:] for fact in facts(told, "evaluations") if fact[3] != 1] for told in (kept, lost)]
    assert models[0] == models[1]
    assert kept.finished()["digest"] != lost.finished()["digest"]


def test_a_synchronous_round_that_waits_for_somebody_gone_for_ever_fails_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="server: waits for an answer, and nobody is left who will give one"):
        played(tmp_path, {"c001": ["0,0.0005"]})


def test_when_nobody_will_ever_return_the_run_fails_and_says_so(tmp_path: Path) -> None:
    slow_server = {"devices": SLOW["devices"] | {"server_flops_per_second": 10.0}}  # everybody leaves while it works
    brief = ["0,1"]
    with pytest.raises(RunFailed, match="server: nobody is there in round 2, and nobody will ever return"):
        played(tmp_path, dict.fromkeys(("c000", "c001", "c002"), brief), links="ideal", **slow_server)


def test_a_partition_holds_messages_back_until_it_heals(tmp_path: Path) -> None:
    cut = {"kind": "partition", "groups": [["server"], [1]], "at_s": 0.01, "until_s": 7}
    told = played(tmp_path, fault=[cut], run__rounds=1, **SLOW)
    (arrival_ns,) = (fact[9] for fact in facts(told, "received", p1="c001", p3="RESULT"))
    (sent_ns,) = (fact[10] for fact in facts(told, "sent", p1="c001", p3="RESULT"))
    assert 0.01 * S < sent_ns < S and arrival_ns > 7 * S


def test_a_slow_link_takes_so_many_times_as_long_to_put_out(tmp_path: Path) -> None:
    def upload_ns(fault: list[dict[str, Any]]) -> int:
        told = played(tmp_path, fault=fault, run__rounds=1)
        (arrival_ns,) = (fact[9] for fact in facts(told, "received", p1="c001", p3="RESULT"))
        (sent_ns,) = (fact[10] for fact in facts(told, "sent", p1="c001", p3="RESULT"))
        return int(arrival_ns - sent_ns) - 1_000_000  # less the latency

    usual, slow = upload_ns([]), upload_ns([{"kind": "slow-link", "clients": [1], "factor": 4.0}])
    assert abs(slow - 4 * usual) <= 4


def test_e61_a_duplicate_changes_nothing_but_is_named() -> None:
    """E61."""
    plain, twice = (
        run_sequentially(Study(validate(description(fault=fault)), RUN))
        for fault in ([], [{"kind": "duplicate", "probability": 1.0}])
    )
    assert plain.finished()["digest"] == twice.finished()["digest"]
    assert plain.finished()["trace_digest"] == twice.finished()["trace_digest"]
    assert {fact[2] for fact in facts(twice, "dropped")} == {"duplicate"}
    data = facts(twice, "sent", p4="data")
    assert len(facts(twice, "dropped")) == len(data) > 0


@pytest.mark.parametrize("schedule", [{"kind": "sync"}, {"kind": "deadline", "deadline_s": 1.0}])
def test_a_message_that_may_never_arrive_needs_a_schedule_that_gives_up(schedule: dict[str, Any]) -> None:
    fault = [{"kind": "lose", "probability": 0.1}]
    with pytest.raises(DescriptionError, match=r"fault\.0\.kind = 'lose': with schedule\.kind = .* without end"):
        Study(validate(description(fault=fault, schedule=schedule)), RUN)


def test_clients_that_are_apart_for_ever_hold_up_nobody_who_has_nothing_to_say_to_the_other(tmp_path: Path) -> None:
    plain, apart = played(tmp_path), played(tmp_path, fault=[{"kind": "partition", "groups": [[0], [1]]}])
    assert apart.finished()["digest"] == plain.finished()["digest"]


PARTIAL = {"kind": "deadline", "deadline_s": 5.0, "over": 1.0, "late": "partial"}


@pytest.mark.parametrize("until", [{"until_s": 3600}, {}])
def test_a_round_of_partial_work_ends_at_its_deadline_without_who_is_gone(
    tmp_path: Path, until: dict[str, float]
) -> None:
    crash = {"kind": "crash", "clients": [1], "at_s": 0.005, "keeps_state": True}
    told = played(tmp_path, fault=[crash | until], schedule=PARTIAL, **SLOW)
    ends = [fact[3] - fact[2] for fact in facts(told, "rounds")]
    assert ends[0] == 5 * S + 1, "the server takes 1 ns to fold in what came"
    assert rounds(told) == [("[0, 1, 2]", 2, 0, 0), ("[0, 2]", 2, 0, 0)]
    assert [event[1] for event in facts(told, "events", p2="cancelled")] == ["c001"]


@pytest.mark.parametrize("schedule", [{"kind": "sync"}, {"kind": "fedasync", "concurrency": 2}])
def test_a_crash_without_end_needs_a_schedule_that_gives_up(tmp_path: Path, schedule: dict[str, Any]) -> None:
    crash = {"kind": "crash", "clients": [1], "keeps_state": True}
    with pytest.raises(DescriptionError, match=r"fault\.0\.until_s is required with .*, as c001 would never answer"):
        played(tmp_path, fault=[crash | {"at_s": 1.0}], schedule=schedule)
    assert rounds(played(tmp_path, fault=[crash], run__rounds=1))[0][0] == "[0, 2]", "never asked, never waited for"


def test_who_will_never_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="nobody is left who will give one: c001 will never answer"):
        played(tmp_path, {"c001": ["0,0.0005"]})


def test_work_beyond_the_end_of_simulated_time_is_named(tmp_path: Path) -> None:
    slow = {"kind": "bimodal", "stragglers": 3, "slowdown": 1e20, "flops_per_second": 2e6}
    with pytest.raises(RunFailed, match=r"c000: its compute would last until .* simulated time ends after 4.61e\+09 s"):
        played(tmp_path, devices=slow | {"server_flops_per_second": 1e12}, availability="always")


def test_when_a_client_is_away_is_told_up_to_any_time() -> None:
    crashes = [
        {"kind": "crash", "clients": ["c001"], "keeps_state": True, "at_s": 1, "until_s": 2},
        {"kind": "crash", "clients": ["c001"], "keeps_state": True, "at_s": 3},
        {"kind": "lose", "probability": 0.5},
    ]
    found = absences("always", crashes, ["c000", "c001"], 1, 5 * S)
    assert found == {"c000": [], "c001": [(S, 2 * S), (3 * S, 5 * S)]}
    assert absences("always", crashes[:1], ["c001"], 1, 3 * S // 2) == {"c001": [(S, 3 * S // 2)]}
    assert absences("always", crashes[2:], ["c001"], 1, S) == {}
    assert absences({"kind": "diurnal", "duty": 0.25, "period_s": 8.0}, [], ["c000"], 1, 16 * S)["c000"]
