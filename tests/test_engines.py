"""What a schedule does with answers that come late, early or not at all; by hand, and as limits of known methods."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch

from nodes.sequential import FactList, run_sequentially
from pflsim.algorithms.fedavg import FedAvg
from pflsim.errors import DescriptionError
from pflsim.federation import mixed, moved
from pflsim.messages.inbox import Inbox
from pflsim.schedules.deadline import Deadline
from pflsim.schedules.fedasync import FedAsync
from pflsim.schedules.fedbuff import FedBuff
from pflsim.spec import validate
from pflsim.staleness import Staleness
from pflsim.study import Study
from tests.launching import description

SLOW = {"devices__flops_per_second": 2e6, "run__clients": 6, "run__rounds": 6}


def played(schedule: dict[str, Any], **settings: Any) -> FactList:
    """A run of FedAvg (uniform weights are those of equal clients) under a schedule, by the sequential driver."""
    return run_sequentially(Study(validate(description(schedule=schedule, **(SLOW | settings))), b"8 bytes."))


def events(told: FactList, what: str) -> list[tuple[Any, ...]]:
    return [fact for fact in told.facts if fact[0] == "events" and fact[2] == what]


def final(told: FactList) -> list[tuple[Any, ...]]:
    """The last evaluations: client, model, split, correct, total."""
    rows = [fact for fact in told.facts if fact[0] == "evaluations"]
    return [row[3:8] for row in rows if row[1] == rows[-1][1]]


@pytest.mark.parametrize("kind", ["constant", "polynomial", "hinge"])
def test_e59_a_fresh_answer_counts_fully_and_an_older_one_never_more_than_a_fresher(kind: Any) -> None:
    """E59."""
    s = Staleness(kind, 0.5, 4)
    weights = [s(age) for age in range(30)]
    assert weights[0] == 1.0
    assert all(older <= newer for newer, older in pairwise(weights))
    if kind == "hinge":
        assert weights[:5] == [1.0] * 5 and weights[6] == 1 / 2.0


def test_an_old_answer_counts_by_the_formula_of_its_kind() -> None:
    assert Staleness("polynomial", 0.5, 0)(3) == 1 / 2  # (1 + 3)^-0.5
    assert Staleness("hinge", 2.0, 4)(7) == 1 / 7  # 1 / (2 (7 - 4) + 1)
    assert Staleness("constant", 2.0, 0)(7) == 1.0


def test_e56_mixing_with_weights_one_over_one_to_n_is_the_plain_average() -> None:
    """E56: alpha_j = 1 / (j + 1) over one cohort."""
    torch.manual_seed(0)
    uploads = torch.randn(7, 50)
    x = torch.zeros(50)
    for j, upload in enumerate(uploads):
        x = mixed(x, upload, 1 / (j + 1))
    assert torch.allclose(x, uploads.mean(0), atol=1e-6)
    assert torch.equal(mixed(x, uploads[3], 1.0), uploads[3])


def test_e57_a_buffer_of_the_whole_cohort_without_staleness_is_fedavg() -> None:
    """E57, for one update: x + mean (u_j - x) = mean u_j."""
    torch.manual_seed(0)
    x, uploads = torch.randn(50), list(torch.randn(5, 50))
    assert torch.allclose(moved(x, [x] * 5, uploads, [1.0] * 5), torch.stack(uploads).mean(0), atol=1e-6)


def test_e57_the_first_full_buffer_of_everybody_is_a_round_of_fedavg() -> None:
    """E57, as a run: buffer = concurrency = N, and equal clients, so that nobody answers twice before the others."""
    equal = {"run__rounds": 1, "devices": "phone"}
    sync = played({"kind": "sync"}, **equal)
    buffered = played({"kind": "fedbuff", "concurrency": 6, "buffer": 6, "staleness": "constant"}, **equal)
    assert final(buffered) == final(sync)
    assert buffered.finished()["rounds"] == sync.finished()["rounds"]


def test_e58_a_deadline_that_nobody_can_miss_is_a_synchronous_round() -> None:
    """E58, bit for bit."""
    sync, patient = played({"kind": "sync"}), played({"kind": "deadline", "deadline_s": 1e6, "over": 1.0})
    assert patient.finished()["digest"] == sync.finished()["digest"]


def test_a_deadline_drops_the_straggler_and_the_round_takes_no_longer_than_it() -> None:
    waited = played({"kind": "sync"}).finished()["simulated_s"]
    told = played({"kind": "deadline", "deadline_s": 0.02, "over": 1.0})
    ends = [fact[3] - fact[2] for fact in told.facts if fact[0] == "rounds"]
    assert max(ends) < 0.0201e9
    assert told.finished()["simulated_s"] < waited / 3
    assert events(told, "late") or any(fact[6] < 6 for fact in told.facts if fact[0] == "rounds")


def test_a_late_answer_is_carried_into_a_later_round_with_a_lower_weight() -> None:
    carried = played({"kind": "deadline", "deadline_s": 0.02, "over": 1.0, "late": "carry"}, run__rounds=12)
    dropped = played({"kind": "deadline", "deadline_s": 0.02, "over": 1.0}, run__rounds=12)
    assert events(dropped, "late") and not events(carried, "late")
    assert carried.finished()["digest"] != dropped.finished()["digest"]
    assert Deadline(0.02).weight(3) == 0.5


def test_nobody_in_time_extends_the_deadline_once_and_then_skips_the_round() -> None:
    told = played({"kind": "deadline", "deadline_s": 1e-6, "over": 1.0}, run__rounds=1)
    (round_,) = (fact for fact in told.facts if fact[0] == "rounds")
    assert round_[3] - round_[2] == 2000
    assert round_[6] == 0 and events(told, "skipped")


def test_fedasync_keeps_so_many_clients_at_work_and_counts_n_arrivals_as_a_round() -> None:
    told = played({"kind": "fedasync", "concurrency": 4})
    assert told.finished()["rounds"] == 6
    taken = [fact for fact in told.facts if fact[0] == "received" and fact[2] == "server" and fact[4] == "data"]
    given = [fact for fact in told.facts if fact[0] == "sent" and fact[1] == "server" and fact[5 - 1] == "data"]
    assert len(taken) >= 36
    assert 0 <= len(given) - 36 <= 4


def test_an_answer_that_is_too_old_is_discarded_and_said() -> None:
    told = played({"kind": "fedasync", "concurrency": 6, "max_staleness": 3}, run__rounds=8)
    assert events(told, "stale")
    assert all(fact[3].startswith("an answer of age") for fact in events(told, "stale"))


def given(told: FactList) -> list[str]:
    """Who was sent work, in order."""
    return [fact[2] for fact in told.facts if fact[0] == "sent" and fact[3] == "WORK"]


def taken(told: FactList) -> list[str]:
    """Whose answers came, in order."""
    return [fact[1] for fact in told.facts if fact[0] == "received" and fact[3] == "RESULT"]


def test_without_staleness_a_decay_of_one_makes_the_model_the_plain_average_of_all_that_came() -> None:
    """E56 as a run: version v takes in its next answer with 1 / (1 + v), so that all count alike."""
    schedule = {"kind": "fedasync", "concurrency": 6, "alpha": 1.0, "alpha_decay": 1.0, "staleness": "constant"}
    equal = {"run__rounds": 1, "devices": "phone", "data__samples": 240, "algorithm": {"name": "fedavg"}}
    sync = played({"kind": "sync"}, **equal)
    assert final(played(schedule, **equal)) == final(sync)
    plain = played(schedule | {"alpha_decay": 0.0}, **equal)
    assert final(plain) != final(sync)
    assert [FedAsync(2, alpha=0.8, alpha_decay=0.5).alpha_of(version) for version in (0, 2, 6)] == [0.8, 0.4, 0.2]


def test_new_work_goes_to_who_has_just_answered_if_that_is_asked_for() -> None:
    schedule = {"kind": "fedasync", "concurrency": 2}
    told = played(schedule | {"same": True}, run__rounds=2)
    first = given(told)[:2]
    assert set(given(told)) == set(first), "the others never work"
    assert given(told)[2:] == taken(told)[: len(given(told)) - 2]
    assert len(set(given(played(schedule, run__rounds=2)))) > 2
    study = Study(validate(description(schedule=schedule | {"same": True})), b"8 bytes.")
    assert study.warnings == [
        "schedule.same: work stays with the first 2 clients that get it, and 2 get none as long as these answer"
    ]


@pytest.mark.parametrize("availability", ["always", {"kind": "markov", "on_s": 0.05, "off_s": 0.02}])
def test_in_a_unique_buffer_nobody_is_twice(availability: Any) -> None:
    schedule = {"kind": "fedbuff", "concurrency": 4, "buffer": 5}
    for unique in (False, True):
        told = played(schedule | {"unique": unique}, run__rounds=10, availability=availability)
        came = [fact[2] for fact in told.facts if fact[0] == "measures" and fact[3] == "age"]
        buffers = [came[at : at + 5] for at in range(0, 50, 5)]
        assert len(came) == 50
        assert all(len(set(buffer)) == 5 for buffer in buffers) == unique


def test_a_unique_buffer_of_everybody_waits_for_everybody() -> None:
    told = played({"kind": "fedbuff", "concurrency": 6, "buffer": 6, "unique": True})
    assert [len(set(json.loads(fact[5]))) for fact in told.facts if fact[0] == "rounds"] == [6] * 6
    sync = played({"kind": "sync"})
    assert told.finished()["simulated_s"] == pytest.approx(sync.finished()["simulated_s"], rel=1e-6)


def test_the_proximal_term_of_fedasyncs_clients_is_fedprox_under_its_schedule() -> None:
    schedule = {"kind": "fedasync", "concurrency": 3}
    digests = [
        played(schedule, algorithm=algorithm).finished()["digest"]
        for algorithm in ({"name": "fedavg"}, {"name": "fedprox", "mu": 0.0}, {"name": "fedprox", "mu": 0.5})
    ]
    assert digests[0] == digests[1] != digests[2]


def test_while_a_straggler_works_evaluation_sees_its_state_from_before() -> None:
    """The private state of Ditto at the time of evaluation, not what its process has computed ahead."""
    often = played({"kind": "deadline", "deadline_s": 0.02, "over": 1.0}, algorithm={"name": "ditto"})
    seldom = played(
        {"kind": "deadline", "deadline_s": 0.02, "over": 1.0}, algorithm={"name": "ditto"}, run__eval_every=6
    )
    assert often.finished()["digest"] == seldom.finished()["digest"]
    assert often.finished()["trace_digest"] == seldom.finished()["trace_digest"]


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"kind": "fedasync", "concurrency": 0}, "schedule.concurrency = 0: must be at least 1"),
        ({"kind": "fedbuff", "concurrency": 2, "max_staleness": -1}, "schedule.max_staleness = -1: must be at least 0"),
        ({"kind": "fedasync", "concurrency": 3, "alpha": 1.5}, "schedule.alpha = 1.5: must be above 0 and at most 1"),
        ({"kind": "fedbuff", "concurrency": 3, "buffer": 0}, "schedule.buffer = 0: must be 1 to 1,000,000"),
        ({"kind": "fedbuff", "concurrency": 3, "rate": 0.0}, "schedule.rate = 0.0: must be above 0"),
        ({"kind": "fedbuff", "concurrency": 3, "buffer": 7, "unique": True}, "schedule.buffer = 7: with unique = true"),
        ({"kind": "fedasync", "concurrency": 3, "alpha_decay": -1.0}, "schedule.alpha_decay = -1.0: must be from 0 to"),
        ({"kind": "deadline", "deadline_s": 0.0}, "schedule.deadline_s = 0.0: must be above 0"),
        ({"kind": "deadline", "deadline_s": 1.0, "cohort": 3, "minimum": 4}, "schedule.minimum = 4: must be 1 to 3"),
        ({"kind": "deadline", "deadline_s": 1.0, "over": 0.5}, "schedule.over = 0.5: must be at least 1"),
        ({"kind": "fedasync"}, "schedule.concurrency is required"),
        ({"kind": "fedasync", "concurrency": 3, "staleness_a": -1.0}, "must be at least 0"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused(schedule: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        played(schedule)
    assert said in str(problem.value)


@dataclass(frozen=True)
class RoundsOnly:
    """FedAvg without its asynchronous forms."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("server_") and name in ("server_arrival", "server_buffer"):
            raise AttributeError(name)
        return getattr(FedAvg(), name)


@pytest.mark.parametrize("schedule", [FedAsync(2), FedBuff(2)])
def test_a_method_without_an_asynchronous_form_is_refused_with_the_reason(schedule: FedAsync | FedBuff) -> None:
    with pytest.raises(DescriptionError, match=r"schedule.kind = '.*': RoundsOnly has no .* form"):
        schedule.check(4, RoundsOnly())


@pytest.mark.parametrize("method", ["local", "scaffold", "fedu"])
def test_a_method_that_mixes_nothing_takes_no_alpha(method: str) -> None:
    with pytest.raises(DescriptionError, match=r"schedule.alpha = 0.5: \w+ mixes nothing: leave it out"):
        played({"kind": "fedasync", "concurrency": 3, "alpha": 0.5}, algorithm={"name": method})


def test_a_schedule_says_what_it_folds_in_and_when() -> None:
    answers: Sequence[Any] = ["first", "second", "third"]
    assert FedAsync(2).folds(answers) == ["third"]
    assert FedBuff(2, buffer=4).folds(answers) == []


def test_a_deadline_may_be_a_quantile_of_the_expected_times() -> None:
    times = [0.4, 0.1, 0.3, 0.2]
    found = [Deadline(quantile=share, slack=1.0).deadline_ns(times) for share in (0.25, 0.5, 0.51, 1.0)]
    assert found == [100_000_000, 200_000_000, 300_000_000, 400_000_000]
    waited = played({"kind": "sync"}).finished()["simulated_s"]
    told = played({"kind": "deadline", "quantile": 0.6, "over": 1.0})
    assert told.finished()["simulated_s"] < waited / 3


def computing(told: FactList) -> dict[str, int]:
    """How long each client computed in its first visit."""
    spans = [fact for fact in reversed(told.facts) if fact[0] == "spans" and fact[2] == "compute"]
    return {fact[1]: fact[4] - fact[3] for fact in spans}


def test_with_partial_work_the_straggler_sends_the_steps_that_it_has_done_and_nobody_is_missing() -> None:
    """It is ten times slower; of its 8 steps, all of 10 samples, a quarter and a bit fits before the deadline."""
    alone = {"training__local_steps": 8, "links": "ideal", "run__rounds": 2, "data__samples": 480}
    whole = computing(played({"kind": "sync"}, **alone))
    longest = max(whole.values())
    told = played({"kind": "deadline", "deadline_s": longest / 3.5e9, "late": "partial"}, **alone)
    assert [(fact[6], fact[8]) for fact in told.facts if fact[0] == "rounds"] == [(6, 0), (6, 0)]
    cut = computing(told)
    straggler = max(whole, key=lambda client: whole[client])
    assert cut[straggler] == longest // 4
    assert {client: ns for client, ns in cut.items() if client != straggler} == {
        client: ns for client, ns in whole.items() if client != straggler
    }


def test_a_client_that_cannot_do_one_step_by_the_deadline_says_so_then() -> None:
    told = played({"kind": "deadline", "deadline_s": 1e-5, "late": "partial"}, links="ideal", run__rounds=1)
    assert [(fact[6], fact[8]) for fact in told.facts if fact[0] == "rounds"] == [(0, 6)]
    assert events(told, "skipped")


def test_cancelled_work_was_never_done_and_its_client_is_free_at_once() -> None:
    told = played({"kind": "deadline", "deadline_s": 0.02, "over": 1.0, "late": "cancel"}, algorithm={"name": "ditto"})
    cancelled = [fact for fact in told.facts if fact[0] == "spans" and fact[2] == "cancelled"]
    straggler = cancelled[0][1]
    assert {fact[1] for fact in cancelled} == {straggler}
    assert len(events(told, "cancelled")) == len(cancelled) == 6
    sent = [fact for fact in told.facts if fact[0] == "sent" and fact[1] == straggler and fact[3] == "RESULT"]
    assert len(sent) == 6 and all(fact[7] == fact[8] == 0 for fact in sent)
    asked = [json.loads(fact[5]) for fact in told.facts if fact[0] == "rounds"]
    assert asked == [list(range(6))] * 6


def test_work_that_was_cancelled_takes_another_time_when_it_is_done_again() -> None:
    """Or a client whose visit happens to be longer than the deadline would never answer any more."""
    noisy = {"devices": {"kind": "constant", "flops_per_second": 2e6, "server_flops_per_second": 1e9, "jitter": 1.0}}
    told = played({"kind": "deadline", "deadline_s": 0.01, "over": 1.0, "late": "cancel"}, run__rounds=30, **noisy)
    cancelled_ns = {fact[1]: fact[4] for fact in reversed(events(told, "cancelled"))}
    answered_ns = {fact[1]: fact[9] for fact in told.facts if fact[0] == "received" and fact[3] == "RESULT"}
    assert len(cancelled_ns) == 6
    assert all(cancelled_ns[client] < answered_ns[client] for client in cancelled_ns), "first and last"


def test_work_without_an_answer_is_given_up_after_a_while() -> None:
    lost = [{"kind": "lose", "probability": 0.3}]
    told = played({"kind": "fedbuff", "concurrency": 4, "buffer": 3, "timeout_s": 0.5}, fault=lost, run__rounds=5)
    assert told.finished()["rounds"] == 5
    assert len(events(told, "cancelled")) >= 3


def test_more_at_work_than_there_are_is_everybody_with_a_warning() -> None:
    many, all_ = (
        Study(validate(description(schedule={"kind": "fedasync", "concurrency": n})), b"8 bytes.") for n in (9, 4)
    )
    assert many.warnings == ["schedule.concurrency = 9: there are 4 clients, all of whom work"]
    assert run_sequentially(many).finished()["digest"] == run_sequentially(all_).finished()["digest"]


def test_what_was_cancelled_is_forgotten_when_nothing_more_can_come_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of many rounds must not remember each of them."""
    inboxes: list[Inbox] = []
    made = Inbox.__init__
    monkeypatch.setattr(Inbox, "__init__", lambda self, downlink: (inboxes.append(self), made(self, downlink))[1])
    played({"kind": "deadline", "deadline_s": 0.05, "over": 1.0, "late": "cancel"}, run__rounds=40, devices__jitter=1.0)
    assert len(max((inbox._cancelled for inbox in inboxes), key=len)) < 20
