"""Whole runs against what theory says of their means: exponential service, and clients that come and go.

Each expectation is a closed form, written out in its test. What a run of finite length may deviate by is stated there
too, in standard errors where theory gives them. Links are ideal: a message takes a nanosecond.
"""

import math
from functools import cache
from typing import Any

import pytest

from nodes.sequential import FactList, run_sequentially
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description

pytestmark = pytest.mark.slow

CLIENTS = 8
DEVICES: dict[str, Any] = {"kind": "constant", "flops_per_second": 1e3, "server_flops_per_second": math.inf}


def played(clients: int = CLIENTS, *, jitter: float | str = "exponential", **settings: Any) -> FactList:
    """A run in which a visit is one gradient on one sample; with this jitter it takes an exponential time."""
    fixed = {
        "run__clients": clients,
        "run__eval_every": 0,
        "links": "ideal",
        "training__batch": 1,
        "training__local_steps": 1,
        "devices": DEVICES | {"jitter": jitter},
    }
    return run_sequentially(Study(validate(description(**(fixed | settings))), b"8 bytes."))


@cache
def service_s() -> float:
    """How long a visit takes on average, which is how long each takes without jitter."""
    return float(played(1, jitter=0.0, run__rounds=1).finished()["simulated_s"])


def answers(told: FactList) -> int:
    """How many uploads the server took."""
    return sum(fact[6] for fact in told.facts if fact[0] == "rounds")


def test_a_synchronous_round_lasts_as_the_longest_of_n_exponential_times_does() -> None:
    """E = s (1 + 1/2 + ... + 1/N), variance s^2 (1 + 1/4 + ... + 1/N^2); within 3 standard errors, here 6 %."""
    rounds = 500
    mean_s = played(run__rounds=rounds).finished()["simulated_s"] / rounds
    expected_s = service_s() * sum(1 / k for k in range(1, CLIENTS + 1))
    error_s = service_s() * math.sqrt(sum(1 / k**2 for k in range(1, CLIENTS + 1)) / rounds)
    assert 3 * error_s < 0.065 * expected_s
    assert abs(mean_s - expected_s) < 3 * error_s


def test_without_rounds_n_clients_at_work_answer_at_n_times_the_rate_of_one() -> None:
    """Arrivals are a Poisson process of rate N / s: A of them take A s / N, with sqrt(A) s / N; 3 of these are 5 %."""
    schedule = {"kind": "fedasync", "concurrency": CLIENTS}
    took_s = played(run__rounds=500, schedule=schedule).finished()["simulated_s"]
    arrivals = 500 * CLIENTS
    expected_s, error_s = arrivals * service_s() / CLIENTS, math.sqrt(arrivals) * service_s() / CLIENTS
    assert abs(took_s - expected_s) < 3 * error_s < 0.05 * expected_s


def test_a_deadline_is_met_by_as_many_as_are_quicker_than_it_and_ends_the_round_for_the_others() -> None:
    """Answers: N (1 - e^-d); the round: min(d, the longest of N), whose mean is the integral of P(longest > t) over t.

    Times are in units of s. Nobody answers in time once in 1/e^-12 rounds. Within 3 standard errors, and 3 %.
    """
    rounds, d = 400, 1.5
    schedule = {"kind": "deadline", "deadline_s": d * service_s(), "over": 1.0, "late": "cancel"}
    told = played(run__rounds=rounds, schedule=schedule)
    share = 1 - math.exp(-d)
    error = math.sqrt(CLIENTS * share * (1 - share) / rounds)
    assert abs(answers(told) / rounds - CLIENTS * share) < 3 * error < 0.03 * CLIENTS * share
    # (1 - (1 - e^-t)^N) integrated from 0 to d: sum over k of (1 - e^-t)^k / k, up to N, taken at d
    expected = sum(share**k / k for k in range(1, CLIENTS + 1))
    assert told.finished()["simulated_s"] / rounds / service_s() == pytest.approx(expected, rel=0.03)


def test_work_that_a_leaving_client_loses_is_repeated_until_an_on_stretch_is_long_enough() -> None:
    """Markov, on a, off b, work s: each answer takes (a + b) (e^(s/a) - 1), of which s is the work; within 5 %."""
    on_s, off_s = 2 * service_s(), 1.5 * service_s()
    availability = {"kind": "markov", "on_s": on_s, "off_s": off_s}
    told = played(1, jitter=0.0, run__rounds=6000, availability=availability)
    expected_s = (on_s + off_s) * math.expm1(service_s() / on_s)
    assert told.finished()["simulated_s"] / answers(told) == pytest.approx(expected_s, rel=0.05)
    lost = sum(fact[8] for fact in told.facts if fact[0] == "rounds")
    assert lost / 6000 == pytest.approx(-math.expm1(-service_s() / on_s), rel=0.05)


def test_exponential_work_of_clients_that_come_and_go_takes_what_theory_says_without_rounds_too() -> None:
    """Lost work is done again, and takes another time: in attempts of s a / (s + a) on average, of which a / (a + s)
    succeed and the others cost b more, an answer takes s (a + b) / a. N clients answer N times as often. Within 5 %."""
    on_s, off_s = 2 * service_s(), 1.5 * service_s()
    availability = {"kind": "markov", "on_s": on_s, "off_s": off_s}
    schedule = {"kind": "fedasync", "concurrency": CLIENTS}
    told = played(run__rounds=600, schedule=schedule, availability=availability)
    expected_s = service_s() * (on_s + off_s) / on_s / CLIENTS
    assert told.finished()["simulated_s"] / (600 * CLIENTS) == pytest.approx(expected_s, rel=0.05)


def test_a_client_that_is_there_in_bernoulli_periods_completes_what_fits_into_its_stretches() -> None:
    """A stretch of k periods P has the chance (1 - p) p^(k-1) and room for floor(k P / s) visits, the next stretch
    begins P / (1 - p) + P / p later on average: that gives the rate of answers. Within 5 %."""
    p, period_s = 0.7, 2.45 * service_s()
    availability = {"kind": "bernoulli", "probability": p, "period_s": period_s}
    told = played(1, jitter=0.0, run__rounds=6000, availability=availability)
    fitting = sum((1 - p) * p ** (k - 1) * math.floor(2.45 * k) for k in range(1, 200))
    rate = fitting / (period_s / (1 - p) + period_s / p)
    assert answers(told) / told.finished()["simulated_s"] == pytest.approx(rate, rel=0.05)
