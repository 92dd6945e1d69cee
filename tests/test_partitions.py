"""Who holds which samples: what must hold for every partition, and the exact set-ups of the papers."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflsim import catalogue
from pflsim.data import split
from pflsim.data.blocks import block_shares, lay
from pflsim.data.divide import divide
from pflsim.data.partition import Downsample, Part, Partition, Pool
from pflsim.data.quotas import fill, range_sizes
from pflsim.errors import DescriptionError
from pflsim.rng import stream

MNIST_TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
MNIST_ALL = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)
CIFAR_ALL = (6000,) * 10
DISJOINT = ("iid", "shards", "disjoint-range", "uniform-rescaled", "dirichlet", "label-shards", "fedu-style")
SMALL_RANGE = {"low": 6, "high": 60}
SMALL_BLOCKS = {"base": 1, "extra_low": 1, "extra_high": 5}
SMALL = {
    "disjoint-range": SMALL_RANGE,
    "uniform-rescaled": SMALL_RANGE,
    "uniform-overlap": SMALL_RANGE,
    "fedu-style": SMALL_BLOCKS,
    "pfedme-style": SMALL_BLOCKS,
}


def pool_of(counts: tuple[int, ...], seed: int = 0, **rules: Any) -> Pool:
    labels = stream(seed, "labels").permutation(np.repeat(np.arange(len(counts)), counts))
    return Pool(labels, len(counts), seed, **rules)


def sizes(partition: Partition) -> list[int]:
    return [len(part.all) for part in partition.parts]


def test_every_partition_of_the_room_is_tested_here() -> None:
    others = {"natural", "by-context", "pooled", "uniform-overlap", "pfedme-style"}
    assert set(catalogue.names("partitions")) == set(DISJOINT) | others


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from([*DISJOINT, "uniform-overlap", "pfedme-style", "natural", "pooled"]),
    counts=st.lists(st.integers(0, 90), min_size=3, max_size=8).map(tuple),
    clients=st.integers(1, 12),
    seed=st.integers(0, 5),
    test_share=st.sampled_from([0.0, 0.25, 0.5]),
    validation=st.sampled_from([0.0, 0.2]),
    downsample=st.sampled_from([None, Downsample(), Downsample(0.9, 0.05, 0.2)]),
)
def test_a_client_never_trains_on_a_test_sample(
    name: str,
    counts: tuple[int, ...],
    clients: int,
    seed: int,
    test_share: float,
    validation: float,
    downsample: Downsample | None,
) -> None:
    pool = pool_of(counts, seed, test_share=test_share, validation=validation, downsample=downsample)
    pool = replace(pool, client=np.arange(len(pool)) % 12)
    table = {"name": name, **SMALL.get(name, {})}
    if name == "pooled":
        table["of"] = {"name": "dirichlet"}
    try:
        partition = divide(pool, table, clients)
    except DescriptionError:
        return  # refused with a reason: the right answer to much of what is tried here
    assert len(partition.parts) == clients
    for part in partition.parts:
        assert len(np.unique(part.all)) == len(part.all)
        assert part.all.dtype == np.int64
        assert np.all(part.all >= 0) and np.all(part.all < len(pool))
    assert partition.report(pool.labels).leaked == 0
    if name != "uniform-overlap":
        held = np.concatenate([part.all for part in partition.parts])
        assert len(np.unique(held)) == len(held)
    assert divide(pool, table, clients).digest == partition.digest


@pytest.mark.parametrize("name", DISJOINT)
def test_a_partition_depends_on_the_seed_and_on_nothing_else(name: str) -> None:
    table = {"name": name, **SMALL.get(name, {})}
    digests = {divide(replace(pool_of((90,) * 6), seed=seed), table, 12).digest for seed in (0, 0, 1)}
    assert len(digests) == 2


@settings(deadline=None, max_examples=100)
@given(counts=st.lists(st.integers(0, 12), min_size=1, max_size=6), share=st.sampled_from([0.1, 0.25, 0.5]))
def test_a_split_inside_a_client_is_by_label(counts: list[int], share: float) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    train, test = split.stratified(np.arange(len(labels)), labels, share, stream(0))
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(labels)))
    if len(labels) < 2:
        assert not len(test)
        return
    assert len(test) >= 1
    taken, there = np.bincount(labels[test], minlength=len(counts)), np.array(counts)
    if max(counts) == 1:  # something must be tested on, although the label then goes untrained
        assert len(test) == 1
        return
    assert not taken[there == 1].any()
    assert np.all(there[there > 0] - taken[there > 0] >= 1)
    if min(counts) >= 10:  # where no label is scarce, the shares are as near as whole samples can be
        assert np.all(np.abs(taken - share * there) < 1)


def test_three_quarters_are_rounded_down_as_in_the_papers() -> None:
    for rows, train in ((281, 210), (409, 306)):  # the smallest and the largest subject of UCI HAR
        assert len(split.stratified(np.arange(rows), np.arange(rows) % 6, 0.25, stream(0))[0]) == train


def test_largest_remainder_gives_exact_totals_within_capacity() -> None:
    counts = split.largest_remainder(np.array([1, 1, 1]), 7, np.array([9, 9, 9]))
    assert counts.tolist() == [3, 2, 2]
    assert split.largest_remainder(np.array([9, 1, 0]), 8, np.array([3, 9, 9])).tolist() == [3, 5, 0]
    assert split.largest_remainder(np.array([1, 1]), 9, np.array([2, 3])).tolist() == [2, 3]


def test_40_clients_of_the_digits_get_44_samples_of_3_classes_each_whatever_the_seed() -> None:
    digits = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
    for seed in range(100):
        partition = divide(pool_of(digits, seed), {"name": "shards", "classes": 3}, 40)
        report = partition.report(pool_of(digits, seed).labels)
        assert (report.train, report.test) == ((33, 33, 33.0), (11, 11, 11.0))
        assert partition.notes == {}
        assert report.label_sets[7:9] == ((7, 8, 9), (0, 8, 9))
        per_label = [np.bincount(pool_of(digits, seed).labels[part.all], minlength=10) for part in partition.parts]
        assert np.max(per_label) <= 16  # of 44: the three labels are even


def test_fill_reaches_what_only_an_exchange_between_clients_can_reach() -> None:
    holds = np.array([[True, True, False], [False, True, True]])
    quotas = fill(np.array([6, 6]), holds, np.array([1, 6, 5]))
    assert quotas.tolist() == [[1, 5, 0], [0, 1, 5]]


@pytest.mark.parametrize("counts", [MNIST_TRAIN, CIFAR_ALL])
def test_disjoint_range_keeps_every_size_in_400_to_5000(counts: tuple[int, ...]) -> None:
    for seed in range(60):
        pool = pool_of(counts, seed)
        partition = divide(pool, {"name": "disjoint-range"}, 40)
        assert min(sizes(partition)) >= 400 and max(sizes(partition)) <= 5000
        assert sum(sizes(partition)) <= 0.9 * len(pool) + 1
        assert partition.notes == {}
    report = partition.report(pool.labels)
    assert report.overlap == 1 and report.classes == (3, 3, 3.0)
    assert sorted(set(report.label_sets)) == sorted(report.label_sets[:10])  # 10 label sets, 4 clients each
    assert {report.label_sets.count(own) for own in report.label_sets} == {4}


def test_uniform_overlap_holds_1_8_times_the_pool_and_leaks_only_without_the_global_split() -> None:
    pools = [pool_of(MNIST_TRAIN, seed) for seed in range(20)]
    together = [divide(pool, {"name": "uniform-overlap"}, 40).report(pool.labels) for pool in pools]
    assert abs(np.mean([report.coverage for report in together]) - 1.8) < 0.1
    assert all(report.leaked == 0 for report in together)
    table = {"name": "uniform-overlap", "global_split": False, "shares": "dirichlet"}
    assert divide(pools[0], table, 40).report(pools[0].labels).leaked > 10_000


def test_uniform_rescaled_goes_below_400() -> None:
    pool = pool_of(MNIST_TRAIN)
    own = sizes(divide(pool, {"name": "uniform-rescaled"}, 40))
    assert 200 < min(own) < 400 and 2300 < max(own) < 2950
    assert sum(own) > 0.995 * len(pool)


@pytest.mark.parametrize(
    ("counts", "clients", "k", "used", "smallest", "largest", "skipped"),
    [(MNIST_ALL, 100, 2, 61_866, 200, 2376, 8), (CIFAR_ALL, 20, 3, 54_572, 1150, 4536, 7)],
)
def test_the_published_fedu_generators_are_reproduced_to_the_sample(
    counts: tuple[int, ...], clients: int, k: int, used: int, smallest: int, largest: int, skipped: int
) -> None:
    drawn = np.random.RandomState(1).lognormal(0, 2.0, (10, clients, k))
    python = random.Random(1)
    sets = (np.arange(clients)[:, None] + np.arange(k)) % 10
    shares = block_shares(np.array(counts), drawn, sets)
    lengths = np.zeros_like(shares)
    for block in np.ndindex(*shares.shape):
        if clients == 100:
            extra = python.randint(10, 100) + 150
            lengths[block] = shares[block] * python.randint(1, 10) + extra
        else:
            lengths[block] = 2 * (shares[block] + python.randint(300, 600))
    quotas, blocks_skipped = lay(np.array(counts), sets, lengths, base=10)
    own = quotas.sum(1)
    assert (own.sum(), own.min(), own.max(), blocks_skipped) == (used, smallest, largest, skipped)


def test_fedu_style_tells_how_many_blocks_were_skipped() -> None:
    pool = pool_of(MNIST_ALL)
    partition = divide(pool, {"name": "fedu-style"}, 100)
    assert partition.notes["blocks"] == 200 and 0 < partition.notes["skipped_blocks"] < 40
    assert min(sizes(partition)) >= 20  # a client whose two blocks are skipped keeps 10 of each label
    assert partition.report(pool.labels).label_sets[9] == (0, 9)


def test_label_shards_are_equal_and_the_official_test_part_follows_the_labels() -> None:
    official = np.repeat(np.arange(10), 1000)
    pool = replace(pool_of(MNIST_TRAIN), official_test=official)
    partition = divide(pool, {"name": "label-shards"}, 100)
    assert {len(part.train) for part in partition.parts} == {600}
    tested = np.concatenate([part.test for part in partition.parts])
    assert sorted(tested.tolist()) == list(range(60_000, 70_000))
    for part in partition.parts:
        trained = np.bincount(pool.labels[part.train], minlength=10) / 600
        seen = np.bincount(official[part.test - 60_000], minlength=10) / len(part.test)
        assert np.abs(trained - seen).max() < 0.07  # the official classes are of other sizes


def test_nobody_is_left_without_official_test_samples() -> None:
    train = [np.zeros(1000, np.int64), np.zeros(1, np.int64)]
    tests = split.official_test(train, np.zeros(10, np.int64), stream(0))
    assert [len(test) for test in tests] == [9, 1]


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("prior", ["pool", "ones"])
def test_dirichlet_per_client_gives_equal_sizes_and_uses_the_pool(alpha: float, prior: str) -> None:
    pool = pool_of((400,) * 8)
    partition = divide(pool, {"name": "dirichlet", "alpha": alpha, "prior": prior}, 32)
    assert set(sizes(partition)) == {100}
    assert sum(sizes(partition)) == len(pool)


def test_a_larger_alpha_gives_more_classes() -> None:
    pool = pool_of((4000,) * 8)
    for by in ("client", "class"):
        tables = [{"name": "dirichlet", "by": by, "alpha": alpha, "prior": "ones"} for alpha in (0.05, 1.0, 100.0)]
        means = [divide(pool, table, 20).report(pool.labels).classes[2] for table in tables]
        assert means == sorted(means) and means[0] < 4 and means[2] == 8


def test_dirichlet_per_class_ends_and_everybody_has_the_minimum() -> None:
    pool = pool_of((100,) * 10)
    table = {"name": "dirichlet", "by": "class", "alpha": 0.01, "minimum": 20, "retries": 3}
    partition = divide(pool, table, 40)
    assert min(sizes(partition)) == 20 and sum(sizes(partition)) == 1000
    assert partition.notes["moved"] > 0


def test_natural_clients_are_the_ids_of_the_data() -> None:
    ids = np.array([7, 3, 7, 3, 9, 7, 9, 3])
    pool = replace(pool_of((4, 4)), client=ids)
    partition = divide(pool, {"name": "natural"}, 3)
    assert [sorted(part.all.tolist()) for part in partition.parts] == [[1, 3, 7], [0, 2, 5], [4, 6]]
    assert partition.notes["natural_ids"] == [3, 7, 9]
    assert divide(pool, {"name": "natural", "pick": "random"}, 2).notes["natural_ids"] != []


def test_by_context_gives_every_client_one_context() -> None:
    pool = replace(pool_of((60, 60)), context=np.arange(120) % 3)
    partition = divide(pool, {"name": "by-context"}, 7)
    assert partition.notes["contexts"] == [0, 1, 2, 0, 1, 2, 0]
    assert all(len(set((part.all % 3).tolist())) == 1 for part in partition.parts)


def test_pooled_moves_all_training_data_to_client_0_and_keeps_everybodys_test_part() -> None:
    pool = pool_of((60, 60, 60), validation=0.1, downsample=Downsample())
    apart = divide(pool, {"name": "shards"}, 6)
    together = divide(pool, {"name": "pooled", "of": {"name": "shards"}}, 6)
    for mine, before in zip(together.parts, apart.parts, strict=True):
        assert mine.test.tolist() == before.test.tolist()
    everything = np.sort(np.concatenate([part.train for part in apart.parts]))
    assert together.parts[0].train.tolist() == everything.tolist()
    assert all(not len(part.train) and not len(part.validation) for part in together.parts[1:])
    assert together.notes["warning"] == "data leaves the clients"


def test_half_of_the_clients_keep_a_fifth_of_their_training_data() -> None:
    pool = pool_of((200,) * 5)
    whole = divide(pool, {"name": "iid"}, 10)
    cut = divide(replace(pool, downsample=Downsample()), {"name": "iid"}, 10)
    poor = cut.notes["downsampled"]
    assert len(poor) == 5
    for client, (before, after) in enumerate(zip(whole.parts, cut.parts, strict=True)):
        assert after.test.tolist() == before.test.tolist()
        assert set(after.train.tolist()) <= set(before.train.tolist())
        assert len(after.train) == (15 if client in poor else 75)
        assert set(pool.labels[after.train]) == set(pool.labels[before.train])


def test_validation_comes_off_the_training_part_and_leaves_the_test_part_alone() -> None:
    pool = pool_of((80, 80))
    without = divide(pool, {"name": "iid"}, 4)
    with_it = divide(replace(pool, validation=0.2), {"name": "iid"}, 4)
    for before, after in zip(without.parts, with_it.parts, strict=True):
        assert after.test.tolist() == before.test.tolist()
        assert sorted([*after.train, *after.validation]) == before.train.tolist()
        assert (len(after.train), len(after.validation)) == (24, 6)


def test_the_report_counts_overlap_coverage_and_leaks() -> None:
    parts = (Part(np.array([0, 1]), test=np.array([2])), Part(np.array([2, 3])))
    report = Partition(parts).report(np.array([0, 0, 1, 1, 2]))
    assert (report.train, report.test, report.classes) == ((2, 2, 2.0), (0, 1, 0.5), (1, 2, 1.5))
    assert (report.overlap, report.coverage, report.leaked) == (5 / 4, 1.0, 1)
    assert report.label_sets == ((0, 1), (1,)) and report.without_test == (1,)
    assert "another client's" in str(report) and "1 clients without a test part" in str(report)


def test_the_digest_sees_which_client_and_which_part_a_sample_is_in() -> None:
    one, two = np.array([1]), np.array([2])
    variants = [(Part(one), Part(two)), (Part(two), Part(one)), (Part(one, test=two),), (Part(one, two),)]
    assert len({Partition(parts).digest for parts in variants}) == 4


@pytest.mark.parametrize(
    ("table", "clients", "key"),
    [
        ({"name": "iid"}, 0, "run.clients"),
        ({"name": "iid"}, 91, "run.clients"),
        ({"name": "sharts"}, 3, "data.partition.name"),
        ({}, 3, "data.partition.name"),
        ({"name": "shards", "klasses": 2}, 3, "data.partition.klasses"),
        ({"name": "shards", "classes": 4}, 3, "data.partition.classes"),
        ({"name": "shards", "classes": 0}, 3, "data.partition.classes"),
        ({"name": "shards", "classes": 3}, 40, "data.partition.classes"),
        ({"name": "shards", "use": 0.0}, 3, "data.partition.use"),
        ({"name": "shards", "sizes": "lognormal", "low": 50}, 3, "data.partition.low"),
        ({"name": "disjoint-range"}, 3, "data.partition.low"),
        ({"name": "disjoint-range", "low": 1, "high": 20}, 3, "data.partition.high"),
        ({"name": "uniform-overlap", "low": 50, "high": 20}, 3, "data.partition.low"),
        ({"name": "dirichlet", "alpha": 0.0}, 3, "data.partition.alpha"),
        ({"name": "dirichlet", "by": "class", "minimum": 31}, 3, "data.partition.minimum"),
        ({"name": "label-shards", "per_client": 40}, 3, "data.partition.per_client"),
        ({"name": "fedu-style", "base": 40}, 3, "data.partition.base"),
        ({"name": "natural"}, 3, "data.partition.name"),
        ({"name": "by-context"}, 3, "data.partition.name"),
        ({"name": "pooled", "of": {"name": "shards", "classes": 9}}, 3, "data.partition.of.classes"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(table: dict[str, Any], clients: int, key: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        divide(pool_of((30, 30, 30)), table, clients)
    assert refused.value.key == key
    assert len(refused.value.expected) > 10


def test_a_partition_by_label_refuses_data_without_classes() -> None:
    pool = Pool(np.zeros(50, np.int64), 0, 0)
    for name in ("shards", "dirichlet", "label-shards", "fedu-style", "uniform-overlap"):
        with pytest.raises(DescriptionError, match="iid or natural"):
            divide(pool, {"name": name}, 5)
    assert sum(sizes(divide(pool, {"name": "iid"}, 5))) == 50


def test_lognormal_and_range_sizes_differ_and_fit_the_classes() -> None:
    pool = pool_of((600,) * 10)
    for kind in ("lognormal", "range"):
        table = {"name": "shards", "classes": 2, "sizes": kind, "use": 0.6}
        own = sizes(divide(pool, table, 20))
        assert min(own) >= 10 and max(own) > 2 * min(own) and sum(own) <= len(pool)


def test_sizes_whose_mean_is_hardly_above_the_least_are_the_least() -> None:
    pool = Pool(labels=np.arange(1797) % 10, classes=10, seed=0)
    assert range_sizes(pool, 1, 1617, 5000, 0.9, stream(0, "sizes")).tolist() == [1617.0]
