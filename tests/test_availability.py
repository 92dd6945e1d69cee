"""Who is there when: the same answer whatever was asked before, and the shares that theory gives."""

from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflsim.errors import DescriptionError
from pflsim.timing.availability import Availability

S = 1_000_000_000
ACTORS = ["server", "c000", "c001"]
MARKOV = {"kind": "markov", "on_s": 30, "off_s": 10}
BERNOULLI = {"kind": "bernoulli", "probability": 0.7, "period_s": 60}
DIURNAL = {"kind": "diurnal", "duty": 0.4, "duty_spread": 0.2, "period_s": 1000}


def stretches(found: Availability, client: str, to_ns: int, from_ns: int = 0) -> list[tuple[bool, int]]:
    """(is it there, for how long) until `to_ns`; the last one is left out, as it may go on."""
    moment_ns, lengths = from_ns, []
    while (next_ns := found.next_change_ns(client, moment_ns)) is not None and next_ns < to_ns:
        lengths.append((found.is_available(client, moment_ns), next_ns - moment_ns))
        moment_ns = next_ns
    return lengths


def share(found: Availability, client: str, to_ns: int) -> float:
    whole = stretches(found, client, to_ns)
    return sum(length for there, length in whole if there) / sum(length for _, length in whole)


def trace(tmp_path: Path, text: str, **more: object) -> Availability:
    file = tmp_path / "there.csv"
    file.write_text("client,from_s,to_s\n" + text)
    return Availability({"kind": "trace", "file": str(file), **more}, ACTORS, 1)


def test_whoever_is_always_there_never_changes() -> None:
    found = Availability("always", ACTORS, 1)
    assert found.is_always
    assert found.is_available("c000", 10**18)
    assert found.next_change_ns("c000", 5) is None
    assert found.available_from_ns("c000", 5) == 5


@pytest.mark.parametrize("setting", [MARKOV, BERNOULLI, DIURNAL])
def test_the_server_is_always_there_and_nobody_else_is_known(setting: dict[str, object]) -> None:
    found = Availability(setting, ACTORS, 1)
    with pytest.raises(KeyError):
        found.is_available("c002", 0)


def test_a_trace_is_read_to_the_nanosecond(tmp_path: Path) -> None:
    found = trace(tmp_path, "c000,20,30\n1,0,1000\n0,10.5,20\nc000,40,50\nc007,3,4\n")
    there = [found.is_available("c000", at) for at in (0, 10 * S + S // 2 - 1, 10 * S + S // 2, 20 * S, 30 * S - 1)]
    assert there == [False, False, True, True, True]
    assert not found.is_available("c000", 30 * S), "a client that leaves at 30 s is not there at 30 s"
    assert found.next_change_ns("c000", 0) == 10 * S + S // 2
    assert found.next_change_ns("c000", 15 * S) == 30 * S, "stretches that touch are one"
    assert found.next_change_ns("c000", 30 * S) == 40 * S
    assert found.next_change_ns("c000", 50 * S) is None
    assert [found.available_from_ns("c000", at * S) for at in (12, 30, 50)] == [12 * S, 40 * S, None]


def test_a_trace_that_repeats_goes_on_over_its_end(tmp_path: Path) -> None:
    found = trace(tmp_path, "c000,0,10\nc000,90,100\nc001,0,100\n", repeat_s=100)
    week = 7 * 100 * S
    assert found.is_available("c000", week + 95 * S)
    assert found.next_change_ns("c000", week + 95 * S) == week + 110 * S
    assert found.next_change_ns("c000", week + 110 * S) == week + 190 * S
    assert found.next_change_ns("c001", week) is None, "who is there all day never leaves"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("c000,5,4\n", "line 2: to_s = 4 must be a finite number above 5"),
        ("c000,0,10\nc001,0,1\nc000,9,12\n", "line 4: c000 is there already then"),
        ("c000,0,10\nc000,0,12\n", "line 3: c000 is there from then on already, by line 2"),
        ("c000,0,soon\n", "line 2: to_s = 'soon' must be a number"),
        ("c000,0,10\n", "has no row for c001"),
        ("c000,0,101\n", "line 2: to_s = 101 is after the end, 100 s"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        trace(tmp_path, text, repeat_s=100)
    assert refused.value.key == "availability.file" and says in refused.value.expected


def test_in_the_long_run_a_markov_client_is_there_for_its_share_and_its_sojourns_have_their_means() -> None:
    found = Availability(MARKOV, ACTORS, 1)
    whole = stretches(found, "c000", 400_000 * S)
    assert len(whole) > 19_000
    assert [there for there, _ in whole[:4]] in ([True, False] * 2, [False, True] * 2)
    on, off = ([length / S for there, length in whole if there == state] for state in (True, False))
    assert mean(on) == pytest.approx(30, rel=0.04) and mean(off) == pytest.approx(10, rel=0.04)
    assert share(found, "c000", 400_000 * S) == pytest.approx(0.75, abs=0.01)
    assert mean(length > 60 for length in on) == pytest.approx(2.718**-2, abs=0.015), "sojourns are exponential"


def test_a_markov_client_starts_as_it_would_be_found_after_a_long_while() -> None:
    many = [f"c{client:04d}" for client in range(2000)]
    found = Availability(MARKOV, many, 1)
    for at_ns in (0, 7 * S, 500 * S):
        assert mean(found.is_available(client, at_ns) for client in many) == pytest.approx(0.75, abs=0.03)


def test_bernoulli_periods_are_independent_with_the_given_probability() -> None:
    found = Availability(BERNOULLI, ACTORS, 1)
    periods = [found.is_available("c000", period * 60 * S + 17) for period in range(8000)]
    assert mean(periods) == pytest.approx(0.7, abs=0.02)
    assert mean(a and b for a, b in pairwise(periods)) == pytest.approx(0.49, abs=0.025)
    assert all(length % (60 * S) == 0 for _, length in stretches(found, "c000", 10_000 * S))
    assert Availability(BERNOULLI | {"probability": 1}, ACTORS, 1).next_change_ns("c000", 0) is None


def test_a_diurnal_client_is_there_once_a_day_for_its_share() -> None:
    many = [f"c{client:03d}" for client in range(500)]
    found = Availability(DIURNAL, many, 1)
    for client in many[:20]:
        first_ns = found.next_change_ns(client, 0)
        assert first_ns is not None
        days = stretches(found, client, first_ns + 9000 * S, first_ns)
        assert len(days) >= 16 and len(set(days)) == 2, "every day is alike"
        assert sum(length for _, length in set(days)) == 1000 * S
        assert 0.2 <= share(found, client, 100_000 * S) <= 0.61
    for at_s in (0, 300, 777):
        assert mean(found.is_available(client, at_s * S) for client in many) == pytest.approx(0.4, abs=0.07)


def test_without_spread_of_the_phase_everybody_comes_at_the_start_of_the_day() -> None:
    found = Availability({"kind": "diurnal", "duty": 0.25, "phase_spread": 0}, ACTORS, 1)
    assert found.is_available("c000", 0)
    assert [found.next_change_ns("c001", day * 86400 * S) for day in (0, 9)] == [21600 * S, (9 * 86400 + 21600) * S]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([MARKOV, BERNOULLI, DIURNAL, DIURNAL | {"duty": 0.8, "duty_spread": 0.0}]),
    st.lists(st.integers(0, 20_000 * S), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
    st.integers(0, 50),
)
def test_neither_the_order_nor_the_number_of_questions_changes_an_answer(
    setting: dict[str, object], moments: list[int], rnd: object, seed: int
) -> None:
    def answers(found: Availability, at_ns: int) -> tuple[object, ...]:
        later_ns = found.next_change_ns("c001", at_ns)
        return found.is_available("c001", at_ns), later_ns, found.available_from_ns("c001", at_ns)

    one, other = Availability(setting, ACTORS, seed), Availability(setting, ["c001", "c000"], seed)
    first = {at_ns: answers(one, at_ns) for at_ns in moments}
    rnd.shuffle(moments)  # type: ignore[attr-defined]
    other.is_available("c000", 3 * S)
    assert {at_ns: answers(other, at_ns) for at_ns in moments} == first
    for at_ns, (there, change_ns, from_ns) in first.items():
        assert change_ns is not None and isinstance(change_ns, int) and change_ns > at_ns
        assert one.is_available("c001", change_ns) is not there and one.is_available("c001", change_ns - 1) is there
        assert from_ns == (at_ns if there else change_ns)


def test_a_year_of_markov_sojourns_is_found_quickly() -> None:
    year_ns = 365 * 86400 * S
    found = Availability(MARKOV | {"on_s": 300, "off_s": 300}, ACTORS, 1)
    change_ns = found.next_change_ns("c000", year_ns)
    assert change_ns is not None and year_ns < change_ns < year_ns + 10**5 * S
    assert found.is_available("c000", change_ns) is not found.is_available("c000", year_ns)


@pytest.mark.parametrize(
    ("setting", "key", "says"),
    [
        ("sometimes", "availability", 'must be "always", or a table'),
        ({"on_s": 3}, "availability.kind", "is required"),
        (MARKOV | {"kind": "markow"}, "availability.kind", "did you mean 'markov'"),
        (MARKOV | {"on_s": 0}, "availability.on_s", "from 1e-06"),
        (MARKOV | {"of_s": 1}, "availability.of_s", "did you mean 'off_s'"),
        ({"kind": "markov", "on_s": 1}, "availability.off_s", "is required"),
        (BERNOULLI | {"probability": 0}, "availability.probability", "above 0"),
        (BERNOULLI | {"period_s": float("nan")}, "availability.period_s", "from 1e-06"),
        (DIURNAL | {"duty": 0.9}, "availability.duty", "with its spread"),
        (DIURNAL | {"phase_spread": 1.5}, "availability.phase_spread", "from 0 to 1"),
        ({"kind": "trace", "file": "nowhere.csv"}, "availability.file", "cannot be read"),
    ],
)
def test_a_wrong_description_of_availability_is_refused(setting: object, key: str, says: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        Availability(setting, ACTORS, 1)
    assert refused.value.key == key
    assert says in refused.value.expected
