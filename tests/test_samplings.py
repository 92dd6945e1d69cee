"""Who takes part: what each sampling promises, by hand and over chance; and in runs, with what they cost."""

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.sequential import FactList, run_sequentially
from pflsim import catalogue
from pflsim.cohorts import predicted_visit_s
from pflsim.effective import effective
from pflsim.errors import DescriptionError
from pflsim.rng import stream
from pflsim.sampling import Population, Setting, load
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.devices import Devices
from pflsim.timing.links import Links
from tests.launching import description

SAMPLINGS: dict[str, Setting] = {
    "all": "all",
    "uniform": "uniform",
    "by-samples": "by-samples",
    "groups": {"kind": "groups", "groups": 4},
    "tiers": {"kind": "tiers", "tiers": 3},
    "power-of-choice": {"kind": "power-of-choice", "candidates": 6},
}
GROUPINGS = ("random", "contiguous", "by-label", "by-speed")
every_sampling = pytest.mark.parametrize("name", SAMPLINGS)


def population(clients: int, seed: int = 1) -> Population:
    """Clients with one or two of five labels each, and a visit of about a second."""
    rng = stream(seed, "population")
    labels = np.zeros((clients, 5), dtype=np.int64)
    for client in range(clients):
        labels[client, rng.integers(5, size=2)] += rng.integers(1, 30, size=2)
    return Population(labels.sum(1), labels, rng.lognormal(size=clients))


class Drawing:
    """A sampling at work, as a run has it."""

    def __init__(self, setting: Setting, known: Population, seed: int = 1) -> None:
        self.sampling, self.known, self.seed = load(setting), known, seed
        strata = getattr(self.sampling, "strata", None)
        if strata is not None:
            self.known = replace(known, strata=strata(known, stream(seed, "strata")))

    def __call__(
        self,
        number: int,
        count: int,
        candidates: Sequence[int] | None = None,
        losses: Mapping[int, float] | None = None,
    ) -> tuple[int, ...]:
        may = range(len(self.known.sizes)) if candidates is None else candidates
        rng = stream(self.seed, "sampler", number)
        return self.sampling.drawn(self.known, may, count, number, rng, losses or {})


# what holds for every sampling


def test_each_sampling_of_the_room_is_tried_here() -> None:
    assert sorted(SAMPLINGS) == catalogue.names("samplings")


@every_sampling
def test_a_cohort_is_ascending_without_repetition_and_the_same_again(name: str) -> None:
    known = population(12)
    for number in range(30):
        cohort = Drawing(SAMPLINGS[name], known)(number, 3)
        assert list(cohort) == sorted(set(cohort)) and set(cohort) <= set(range(12))
        assert len(cohort) == (12 if name == "all" else 3)
        assert all(type(client) is int for client in cohort)
        assert cohort == Drawing(SAMPLINGS[name], known)(number, 3)


@every_sampling
@given(may=st.sets(st.integers(0, 11)), count=st.integers(1, 12), number=st.integers(0, 50))
def test_only_candidates_are_drawn_and_never_more_than_wanted(
    name: str, may: set[int], count: int, number: int
) -> None:
    cohort = Drawing(SAMPLINGS[name], population(12))(number, count, sorted(may))
    assert set(cohort) <= may and list(cohort) == sorted(set(cohort))
    assert name == "all" or len(cohort) <= count
    if name in ("uniform", "by-samples"):
        assert len(cohort) == min(count, len(may))
    if name == "tiers" and may:
        assert cohort, "a tier without candidates is not drawn"
    if name == "power-of-choice":
        assert len(cohort) == min(count, 6, len(may))


@every_sampling
def test_what_is_drawn_depends_on_the_seed(name: str) -> None:
    known = population(12)
    cohorts = [[Drawing(SAMPLINGS[name], known, seed)(number, 3) for number in range(8)] for seed in (1, 2)]
    assert (cohorts[0] == cohorts[1]) == (name == "all")


def test_uniform_draws_everybody_equally_often() -> None:
    draw = Drawing("uniform", population(10))
    counts = Counter(client for number in range(3000) for client in draw(number, 3))
    assert all(abs(counts[client] - 900) < 5 * np.sqrt(3000 * 0.3 * 0.7) for client in range(10))


def test_by_samples_draws_in_proportion_to_them_and_nobody_without() -> None:
    draw = Drawing("by-samples", replace(population(4), sizes=np.array([10, 20, 0, 70])))
    counts = Counter(client for number in range(3000) for client in draw(number, 1))
    assert counts[2] == 0
    for client, share in ((0, 0.1), (1, 0.2), (3, 0.7)):
        assert abs(counts[client] - 3000 * share) < 5 * np.sqrt(3000 * share * (1 - share))
    assert draw(0, 4) == (0, 1, 3)


# groups


@given(
    clients=st.integers(1, 40),
    groups=st.integers(1, 40),
    count=st.integers(1, 12),
    grouping=st.sampled_from(("random", "contiguous", "by-speed")),
)
def test_e55_groups_are_disjoint_take_turns_and_leave_a_client_alone_for_g_minus_1_rounds(
    clients: int, groups: int, count: int, grouping: str
) -> None:
    """E55."""
    groups = min(groups, clients)
    draw = Drawing({"kind": "groups", "groups": groups, "grouping": grouping}, population(clients))
    strata = draw.known.strata
    assert sorted(client for group in strata for client in group) == list(range(clients))
    assert max(map(len, strata)) - min(map(len, strata)) <= 1
    last: dict[int, int] = {}
    for number in range(3 * groups):
        cohort = draw(number, count)
        assert set(cohort) <= set(strata[number % groups])
        assert len(cohort) == min(count, len(strata[number % groups]))
        assert all(number - last.get(client, -groups) >= groups for client in cohort)
        last |= dict.fromkeys(cohort, number)


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_e55_with_n_over_b_groups_everybody_works_exactly_once_per_cycle(grouping: str) -> None:
    """E55."""
    draw = Drawing({"kind": "groups", "groups": 4, "grouping": grouping}, population(12))
    for cycle in range(3):
        worked = [client for number in range(4 * cycle, 4 * cycle + 4) for client in draw(number, 3)]
        assert sorted(worked) == list(range(12))


def test_inside_a_group_everybody_is_drawn_equally_often() -> None:
    draw = Drawing({"kind": "groups", "groups": 2, "grouping": "contiguous"}, population(10))
    counts = Counter(client for number in range(4000) for client in draw(number, 2))
    assert all(abs(counts[client] - 800) < 5 * np.sqrt(2000 * 0.4 * 0.6) for client in range(10))


def test_contiguous_groups_and_those_by_speed_are_as_by_hand() -> None:
    known = replace(population(7), visit_s=np.array([3.0, 1.0, 2.0, 1.0, 9.0, 0.5, 4.0]))
    contiguous = Drawing({"kind": "groups", "groups": 3, "grouping": "contiguous"}, known)
    assert contiguous.known.strata == ((0, 1, 2), (3, 4), (5, 6))
    by_speed = Drawing({"kind": "groups", "groups": 3, "grouping": "by-speed"}, known)
    assert by_speed.known.strata == ((1, 3, 5), (0, 2), (4, 6))


def test_groups_by_label_put_clients_with_the_same_labels_together_and_are_balanced() -> None:
    kinds = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    counts = np.eye(3, dtype=np.int64)[kinds] * np.arange(1, 13)[:, None]  # sizes differ, shares of labels do not
    known = Population(counts.sum(1), counts, np.ones(12))
    strata = Drawing({"kind": "groups", "groups": 3, "grouping": "by-label"}, known).known.strata
    assert sorted(strata) == [(0, 3, 6, 9), (1, 4, 7, 10), (2, 5, 8, 11)]
    for groups in (1, 5, 12):  # more groups than kinds, and sizes that cannot be equal
        parts = Drawing({"kind": "groups", "groups": groups, "grouping": "by-label"}, known).known.strata
        assert sorted(client for part in parts for client in part) == list(range(12))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


# tiers


def test_a_round_is_for_one_tier_and_the_fastest_tier_is_the_first() -> None:
    known = population(20)
    draw = Drawing({"kind": "tiers", "tiers": 4}, known)
    order = np.argsort(known.visit_s, kind="stable")
    assert draw.known.strata == tuple(tuple(sorted(order[at : at + 5].tolist())) for at in range(0, 20, 5))
    of = {client: tier for tier, members in enumerate(draw.known.strata) for client in members}
    drawn = [{of[client] for client in draw(number, 3)} for number in range(2000)]
    assert all(len(tiers) == 1 for tiers in drawn)
    counts = Counter(tier for tiers in drawn for tier in tiers)
    assert all(abs(counts[tier] - 500) < 5 * np.sqrt(2000 * 0.25 * 0.75) for tier in range(4))


def test_tiers_are_drawn_with_the_chances_that_are_given() -> None:
    draw = Drawing({"kind": "tiers", "tiers": 3, "chances": [0.8, 0.2, 0.0]}, population(9))
    of = {client: tier for tier, members in enumerate(draw.known.strata) for client in members}
    counts = Counter(of[draw(number, 1)[0]] for number in range(2000))
    assert counts[2] == 0 and abs(counts[0] - 1600) < 5 * np.sqrt(2000 * 0.8 * 0.2)
    assert draw(0, 1, candidates=draw.known.strata[2]) == (), "a tier whose chance is 0 is never drawn"
    assert {of[client] for number in range(20) for client in draw(number, 1, draw.known.strata[1])} == {1}


# power of choice


def test_the_clients_with_the_highest_losses_are_taken_unknown_ones_first_and_ties_by_id() -> None:
    draw = Drawing({"kind": "power-of-choice", "candidates": 6}, replace(population(6), sizes=np.ones(6, int)))
    losses = {0: 0.1, 1: 0.5, 2: 0.5, 3: 0.2, 4: 0.9, 5: 0.3}
    assert draw(0, 2, losses=losses) == (1, 4)
    assert draw(0, 3, losses=losses) == (1, 2, 4)
    assert draw(0, 2, losses={key: value for key, value in losses.items() if key not in (0, 3)}) == (0, 3)
    assert draw(0, 1, losses=losses | {5: float("nan")}) == (5,)
    assert draw(0, 2) == (0, 1)


def test_candidates_for_the_choice_are_drawn_by_their_samples() -> None:
    known = replace(population(4), sizes=np.array([1, 2, 3, 4]))
    losses = {0: 4.0, 1: 3.0, 2: 2.0, 3: 1.0}  # of two candidates the one with the lower id is taken
    draw = Drawing({"kind": "power-of-choice", "candidates": 2}, known)
    counts = Counter(draw(number, 1, losses=losses)[0] for number in range(4000))
    first = {pair: _chance(pair) for pair in itertools.combinations(range(4), 2)}
    for client in range(4):
        share = sum(chance for pair, chance in first.items() if pair[0] == client)
        assert abs(counts[client] - 4000 * share) <= 5 * np.sqrt(4000 * share * (1 - share))


def _chance(pair: tuple[int, int]) -> float:
    """The chance to draw this pair, in any order, from weights 0.1, 0.2, 0.3, 0.4 without replacement."""
    a, b = ((client + 1) / 10 for client in pair)
    return a * b / (1 - a) + b * a / (1 - b)


# in runs


def played(schedule: dict[str, Any], **settings: Any) -> FactList:
    small = {"run__clients": 8, "run__rounds": 8, "devices__flops_per_second": 2e6}
    return run_sequentially(Study(validate(description(schedule=schedule, **(small | settings))), b"8 bytes."))


def cohorts(told: FactList) -> list[list[int]]:
    return [json.loads(fact[5]) for fact in told.facts if fact[0] == "rounds"]


def test_in_a_run_groups_take_turns_and_everybody_works_once_per_cycle() -> None:
    worked = cohorts(played({"cohort": 2, "sampling": {"kind": "groups", "groups": 4}}))
    assert [len(cohort) for cohort in worked] == [2] * 8
    assert worked[:4] == worked[4:] and sorted(itertools.chain(*worked[:4])) == list(range(8))


def test_tiers_keep_the_straggler_of_a_run_apart() -> None:
    schedule = {"cohort": 2, "sampling": {"kind": "tiers", "tiers": 4}}
    told = played(schedule, run__rounds=30, devices__stragglers=2, run__eval_every=0)
    lasted = {tuple(json.loads(fact[5])): fact[3] - fact[2] for fact in told.facts if fact[0] == "rounds"}
    assert len(lasted) == 4, "the cohort is its whole tier"
    *fast, slow = sorted(lasted.values())
    assert slow > 4 * max(fast)


def test_a_run_with_power_of_choice_reports_losses_pays_for_them_and_then_takes_the_highest() -> None:
    sampling = {"kind": "power-of-choice", "candidates": 8}
    told = played({"cohort": 2, "sampling": sampling}, run__eval_every=0)
    worked = cohorts(told)
    assert sorted(itertools.chain(*worked[:4])) == list(range(8)), "who never reported comes first"
    assert worked[:4] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    plain = played({"cohort": 2, "sampling": {"kind": "groups", "groups": 4, "grouping": "contiguous"}})
    spent, without = (
        [span[4] - span[3] for span in of.facts if span[:3] == ("spans", "c000", "compute")] for of in (told, plain)
    )
    assert spent[0] > without[0]
    assert (
        told.finished()["digest"] == played({"cohort": 2, "sampling": sampling}, run__eval_every=1).finished()["digest"]
    )


def fresh(candidates: int) -> dict[str, Any]:
    return {"kind": "power-of-choice", "candidates": candidates, "fresh": True}


def test_fresh_losses_are_asked_for_before_each_round_and_the_highest_at_the_present_model_are_taken() -> None:
    tables = description(schedule={"cohort": 3, "sampling": fresh(5)}, run__clients=8, run__rounds=3)
    study = Study(validate(tables), b"8 bytes.")
    told = run_sequentially(study)
    asked = [[fact[2] for fact in told.facts if _is_sent(fact, "PROBE", round_)] for round_ in (1, 2, 3)]
    assert [len(set(names)) for names in asked] == [5, 5, 5] and asked[0] != asked[1]
    losses = {name: study.task(study.number_of[name], 0, 0).loss(study.initial) for name in asked[0]}
    highest = sorted(asked[0], key=lambda name: -losses[name])[:3]
    assert [study.names[client] for client in cohorts(told)[0]] == sorted(highest)
    for cohort, names in zip(cohorts(told), asked, strict=True):
        assert {study.names[client] for client in cohort} < set(names), "who was not asked is not chosen"


def test_asking_for_fresh_losses_is_charged_in_bytes_and_takes_the_time_of_an_exchange() -> None:
    """Ideal links: nothing but work takes time, and an evaluation is a third of one pass forward and backward."""
    one = {"run__clients": 6, "run__rounds": 2, "run__eval_every": 0, "links": "ideal", "devices__slowdown": 1.0}
    one |= {"training__local_steps": None, "training__local_epochs": 1}
    asked = played({"cohort": 6, "sampling": fresh(6)}, **one)
    plain = played({"kind": "sync"}, **one)
    sums = [Counter(dict.fromkeys(("PROBE", "LOSS"), 0)) for _ in range(2)]
    for told, bytes_of in zip((asked, plain), sums, strict=True):
        for fact in told.facts:
            if fact[0] == "sent" and fact[4] == "data":
                bytes_of[fact[3]] += fact[7]
    assert sums[0]["PROBE"] == sums[0]["WORK"] == sums[1]["WORK"] > 0
    assert sums[0]["LOSS"] == 0, "a loss is a fact in the header"
    assert len([fact for fact in asked.facts if fact[0] == "sent" and fact[3] == "LOSS" and fact[8] > 0]) == 12
    assert asked.finished()["digest"] == plain.finished()["digest"], "everybody is chosen in any case"
    times = [told.finished()["simulated_s"] for told in (asked, plain)]
    assert times[0] == pytest.approx(times[1] * 4 / 3, rel=1e-3)


def test_a_deadline_does_without_the_losses_that_come_too_late() -> None:
    schedule = {"kind": "deadline", "deadline_s": 0.02, "cohort": 4, "over": 1.0, "sampling": fresh(8)}
    told = played(schedule | {"late": "cancel"}, devices__slowdown=1000.0)
    (straggler,) = {fact[1] for fact in told.facts if fact[0] == "events" and fact[2] == "cancelled"}
    assert all(int(straggler[1:]) not in cohort for cohort in cohorts(told))
    assert all(len(cohort) == 4 for cohort in cohorts(told))


def test_who_leaves_while_it_is_asked_says_so_when_it_is_back_and_is_not_chosen() -> None:
    away = {"kind": "crash", "clients": [0], "at_s": 1e-3, "until_s": 5.0, "keeps_state": True}
    told = played({"cohort": 8, "sampling": fresh(8)}, fault=[away], run__rounds=2, links="ideal")
    assert [fact[1] for fact in told.facts if fact[0] == "events" and fact[2] == "away"] == ["c000"]
    assert cohorts(told) == [[1, 2, 3, 4, 5, 6, 7], list(range(8))]
    first = next(fact for fact in told.facts if fact[0] == "rounds")
    assert first[3] >= 5e9


def _is_sent(fact: tuple[Any, ...], kind: str, round_: int) -> bool:
    return fact[0] == "sent" and fact[3] == kind and fact[6] == round_


def test_what_a_client_reports_is_its_mean_training_loss_at_the_model_that_it_received() -> None:
    study = Study(
        validate(description(schedule={"cohort": 1, "sampling": {"kind": "power-of-choice", "candidates": 2}})),
        b"8 bytes.",
    )
    task = study.task(1, 0, 0)
    down = study.method.server_down(study.method.server_init(study.federation), 1, study.round(0))
    (loss,) = study.reported(task, down).values()
    assert loss == task.evaluate(study.initial, "train").loss_sum / task.n_samples
    assert task.spent == study.reporting_work(task)
    quiet = Study(validate(description()), b"8 bytes.")
    assert quiet.reported(task, down) == {}


def test_a_study_groups_its_clients_by_their_training_labels() -> None:
    sampling = {"kind": "groups", "groups": 2, "grouping": "by-label"}
    apart = {"name": "shards", "classes": 1}
    study = Study(
        validate(description(schedule={"cohort": 2, "sampling": sampling}, data__partition=apart)), b"8 bytes."
    )
    known = study.cohorts.population
    assert known.label_counts is not None and known.label_counts.sum(1).tolist() == known.sizes.tolist()
    shares = known.label_counts / known.sizes[:, None]

    def unlike(parts: Sequence[Sequence[int]]) -> float:
        return sum(float(shares[list(part)].var(0).sum()) for part in parts)

    others = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    assert unlike(known.strata) == min(map(unlike, others))


def test_a_deadline_draws_from_its_groups_too() -> None:
    sampling = {"kind": "groups", "groups": 2, "grouping": "contiguous"}
    told = played({"kind": "deadline", "deadline_s": 5.0, "cohort": 2, "over": 1.5, "sampling": sampling})
    for number, cohort in enumerate(cohorts(told)):
        assert len(cohort) == 3 and {client // 4 for client in cohort} == {number % 2}
    everybody = played({"kind": "deadline", "deadline_s": 5.0, "cohort": 2, "sampling": "all"}, run__rounds=1)
    assert cohorts(everybody) == [list(range(8))]


def test_e58_a_deadline_that_is_never_reached_is_a_synchronous_round() -> None:
    """E58, bit for bit, with the same draws."""
    sampling = {"kind": "groups", "groups": 2}
    patient = played({"kind": "deadline", "deadline_s": 1e8, "cohort": 2, "over": 1.0, "sampling": sampling})
    sync = played({"cohort": 2, "sampling": sampling})
    assert patient.finished()["digest"] == sync.finished()["digest"]


def test_a_round_of_a_study_draws_from_the_candidates_that_are_given() -> None:
    study = Study(validate(description(schedule={"cohort": 2, "sampling": "uniform"})), b"8 bytes.")
    assert study.round(0, candidates=[1, 3]).cohort == (1, 3)
    assert study.round(0, candidates=[2]).cohort == (2,)
    assert study.round(0, candidates=[]).cohort == ()
    assert study.round(0).cohort == study.round(0, candidates=range(4)).cohort


def test_a_visit_is_predicted_as_transfers_and_work_by_hand() -> None:
    names = ("c000", "c001")
    ends = {"uplink_mbps": 8.0, "downlink_mbps": 16.0}
    links = Links(
        {"client": ends, "server": {"uplink_mbps": 4.0, "downlink_mbps": 80.0}, "latency_ms": 10.0}, ("server", *names)
    )
    devices = Devices({"kind": "constant", "flops_per_second": 1e6, "server_flops_per_second": 1e9}, names, 1)
    seconds = predicted_visit_s(names, [1e6, 3e6], 1_000_000, devices, links)
    assert seconds == pytest.approx([2.0 + 1.0 + 0.02 + 1.0, 2.0 + 1.0 + 0.02 + 3.0])


# descriptions


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"sampler": "uniform", "cohort": 2}, "schedule.sampler = 'uniform': unknown key; known are cohort, "),
        ({"sampler": "uniform", "cohort": 2}, "; did you mean 'sampling'?"),
        ({"kind": "deadline", "deadline_s": 1.0, "sampler": "all"}, "; did you mean 'sampling'?"),
        ({"sampling": "unifrom", "cohort": 2}, "schedule.sampling = 'unifrom': known are all, by-samples, groups, "),
        ({"sampling": {"kind": "gruops"}, "cohort": 2}, "schedule.sampling.kind = 'gruops': "),
        ({"sampling": {"groups": 2}, "cohort": 2}, "schedule.sampling.kind is required"),
        ({"sampling": 3, "cohort": 2}, "schedule.sampling = 3: "),
        ({"sampling": "groups", "cohort": 2}, "schedule.sampling.groups is required"),
        ({"sampling": {"kind": "groups", "groups": 2}}, "': 2}: needs a cohort or a fraction, all but"),
        ({"sampling": "all", "cohort": 2}, "schedule.sampling = 'all': needs a cohort or a fraction, all but"),
        ({"sampling": {"kind": "groups", "groups": 5}, "cohort": 2}, "schedule.sampling.groups = 5: must be 1 to 4"),
        ({"sampling": {"kind": "groups", "groups": 0}, "cohort": 2}, "schedule.sampling.groups = 0: must be 1 to 4"),
        (
            {"sampling": {"kind": "groups", "groups": 2, "grouping": "x"}, "cohort": 2},
            "schedule.sampling.grouping = 'x'",
        ),
        ({"sampling": "tiers", "cohort": 2}, "schedule.sampling.tiers = 5: must be 1 to 4, the number of clients"),
        ({"sampling": {"kind": "tiers", "tiers": 2, "chances": [1.0]}, "cohort": 2}, "must be 2 numbers from 0 to 1"),
        ({"sampling": {"kind": "tiers", "tiers": 2, "chances": [0.9, 0.9]}, "cohort": 2}, "that sum to 1"),
        ({"sampling": "power-of-choice", "cohort": 2}, "schedule.sampling.candidates is required"),
        ({"sampling": {"kind": "power-of-choice", "candidates": 1}, "cohort": 2}, "candidates = 1: must be 2 to 4"),
        ({"sampling": {"kind": "power-of-choice", "candidates": 9}, "cohort": 2}, "candidates = 9: must be 2 to 4"),
        (
            {"kind": "deadline", "deadline_s": 1.0, "minimum": 3, "sampling": {"kind": "groups", "groups": 2}},
            "schedule.minimum = 3: must be at most 2: in some rounds there are no more clients to draw",
        ),
    ],
)
def test_a_sampling_that_cannot_be_is_refused(schedule: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        Study(validate(description(schedule=schedule)), b"8 bytes.")
    assert said in str(problem.value)


@pytest.mark.parametrize("fresh", [False, True])
def test_power_of_choice_is_refused_for_a_method_that_sends_no_model(fresh: bool) -> None:
    schedule = {"cohort": 2, "sampling": {"kind": "power-of-choice", "candidates": 3, "fresh": fresh}}
    with pytest.raises(DescriptionError, match="needs a method that sends clients a model"):
        Study(validate(description(schedule=schedule, algorithm={"name": "local"})), b"8 bytes.")


def test_groups_by_label_are_refused_where_there_are_no_labels() -> None:
    sampling = load({"kind": "groups", "groups": 2, "grouping": "by-label"})
    known = replace(population(4), label_counts=None)
    with pytest.raises(DescriptionError, match="these data have no labels to group by"):
        sampling.strata(known, stream(1, "strata"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("sampling", [{"kind": "groups", "groups": 2}, {"kind": "tiers", "tiers": 2}])
def test_a_cohort_larger_than_a_group_is_the_whole_group_and_a_warning_says_so(sampling: Setting) -> None:
    study = Study(validate(description(schedule={"cohort": 3, "sampling": sampling})), b"8 bytes.")
    said = "schedule.sampling: 3 clients are wanted in a round, but in some there are only 2 to draw"
    assert said in study.plan()["warnings"]
    assert len(study.round(0).cohort) == 2


def test_what_was_in_force_is_written_down_with_its_defaults() -> None:
    tables = description(schedule={"cohort": 1, "sampling": {"kind": "groups", "groups": 2}})
    written = effective(validate(tables))["schedule"]
    assert written["sampling"] == {"kind": "groups", "groups": 2, "grouping": "random"}
    assert (
        effective(validate(description(schedule={"cohort": 1, "sampling": "uniform"})))["schedule"]["sampling"]
        == "uniform"
    )
    again = Study(validate(description(schedule=written)), b"8 bytes.")
    assert again.round(0).cohort == Study(validate(tables), b"8 bytes.").round(0).cohort
