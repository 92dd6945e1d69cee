"""The numbers by which methods are compared, against values worked out by hand."""

import math

import pytest

from pflsim.statistics import censored, holm, paired_difference, spread


def test_a_standard_deviation_over_seeds_is_divided_by_one_less_than_their_number() -> None:
    found = spread([1.0, 2.0, 3.0])
    assert (found.n, found.mean, found.std) == (3, 2.0, 1.0)
    assert math.isnan(spread([1.0]).std) and spread([]).n == 0


def test_a_t_interval_over_three_seeds_is_what_the_tables_of_student_give() -> None:
    found = paired_difference({1: 11.0, 2: 12.0, 3: 13.0}, {1: 10.0, 2: 10.0, 3: 10.0})
    assert found is not None and found.mean == 2.0
    quantile = 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025))  # of Student's t with 2 degrees of freedom, in closed form
    half = quantile / math.sqrt(3)  # as the standard deviation is 1
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), abs=1e-12)
    assert found.p_value == pytest.approx(1 - math.sqrt(12 / 14), abs=1e-12)  # 1 - t / sqrt(2 + t^2)
    assert not found.excludes_zero


def test_differences_are_taken_on_common_seeds_alone_whatever_the_order() -> None:
    found = paired_difference({3: 5.0, 1: 1.0, 9: 100.0}, {1: 0.0, 2: -7.0, 3: 2.0})
    assert found is not None and (found.n, found.mean) == (2, 2.0)
    assert paired_difference({1: 1.0}, {2: 1.0}) is None


def test_one_seed_gives_a_difference_and_no_interval() -> None:
    found = paired_difference({1: 1.5}, {1: 1.0})
    assert found is not None and found.mean == 0.5
    assert math.isnan(found.low) and math.isnan(found.p_value) and not found.excludes_zero


def test_a_method_beside_itself_does_not_differ() -> None:
    same = dict.fromkeys(range(6), 0.9)
    found = paired_difference(same, same)
    assert found is not None and not found.excludes_zero and found.p_value == 1.0 and found.rank_p_value == 1.0


def test_there_is_no_rank_test_under_six_seeds() -> None:
    six = {seed: float(seed) for seed in range(1, 7)}
    zero = dict.fromkeys(six, 0.0)
    found = paired_difference(six, zero)
    assert found is not None and found.rank_p_value == 2 / 2**6
    five = paired_difference({seed: six[seed] for seed in range(1, 6)}, zero)
    assert five is not None and five.rank_p_value is None


def test_holm_multiplies_the_least_by_their_number_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    found = holm([0.02, math.nan, 0.5])
    assert found[0] == 0.04 and math.isnan(found[1]) and found[2] == 0.5


def test_what_was_never_reached_counts_as_longer_than_any_number() -> None:
    assert censored([3.0, None, 1.0]) == type(censored([]))(reached=2, n=3, median=3.0)
    assert censored([1.0, None]).median is None
    assert censored([1.0, 2.0, 4.0, None]).median == 3.0
    assert str(censored([None, None])) == "0 of 2"


def test_equal_differences_in_few_seeds_say_nothing_of_how_much_they_vary() -> None:
    found = paired_difference({1: 51.0, 2: 52.0, 3: 53.0}, {1: 50.0, 2: 51.0, 3: 52.0})
    assert found is not None and found.mean == 1.0
    assert math.isnan(found.low) and math.isnan(found.p_value) and not found.excludes_zero
    same = paired_difference({1: 51.0, 2: 52.0}, {1: 51.0, 2: 52.0})
    assert same is not None and (same.low, same.high, same.p_value) == (0.0, 0.0, 1.0)
