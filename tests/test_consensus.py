"""How far models of peers are from each other, exactly and by sketches, and how old what peers used was."""

from pathlib import Path

import numpy as np
import pytest

from pflsim.record.consensus import (
    FINAL,
    SKETCH,
    SKETCHED,
    Consensus,
    Staleness,
    consensus_distance,
    consensus_over_rounds,
    flat,
    last_consensus,
    sketch,
    staleness_per_edge,
)
from pflsim.record.consensus_plot import consensus_figure
from pflsim.record.database import Reader, Record, packed
from tests.launching import description
from tests.recorded import AMONG, PEERS, record_of


def reader_of(path: Path, facts: list[tuple[object, ...]]) -> Reader:
    with Record(path) as record:
        record.write(facts)
    return Reader(path)


def told(round: int, peer: str, *numbers: float, name: str = SKETCH) -> tuple[object, ...]:
    return "measures", round, peer, name, packed(np.array(numbers, dtype=np.float32))


def test_the_consensus_distance_is_the_mean_squared_distance_from_the_mean() -> None:
    assert consensus_distance(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]])) == 5.0
    assert consensus_distance(np.full((3, 7), 0.1, dtype=np.float32)) == pytest.approx(0.0, abs=1e-30)


def test_what_a_peer_shows_is_one_vector_in_the_order_of_names() -> None:
    shown = {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": np.array([5.0])}
    assert flat(shown).tolist() == [5.0, 1.0, 2.0, 3.0, 4.0]
    assert flat(shown).dtype == np.float32


def test_a_small_model_is_its_own_sketch_and_a_large_one_has_so_many_numbers() -> None:
    small = np.arange(SKETCHED, dtype=np.float32)
    assert np.array_equal(sketch(small, 1), small)
    large = np.arange(5000, dtype=np.float32)
    assert sketch(large, 1).shape == (SKETCHED,)
    assert np.array_equal(sketch(large, 1), sketch(large, 1))
    assert not np.array_equal(sketch(large, 1), sketch(large, 2))


def test_a_sketch_is_linear() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 3000)).astype(np.float32)
    np.testing.assert_allclose(sketch(one - other, 7), sketch(one, 7) - sketch(other, 7), atol=1e-5)


def test_sketches_keep_squared_lengths_in_the_mean_with_the_error_that_is_stated() -> None:
    """The relative standard error of ||S x||^2 is sqrt(2 / SKETCHED): over 400 seeds a tenth of it about its mean."""
    x = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    lengths = np.array([(sketch(x, seed).astype(np.float64) ** 2).sum() for seed in range(400)]) / (x**2).sum()
    assert lengths.mean() == pytest.approx(1.0, abs=4 * np.sqrt(2 / SKETCHED / 400))
    assert lengths.std() == pytest.approx(np.sqrt(2 / SKETCHED), rel=0.15)


def test_the_consensus_distance_of_sketches_is_near_that_of_models() -> None:
    models = np.random.default_rng(1).normal(size=(20, 4000)).astype(np.float32)
    estimate = consensus_distance(np.stack([sketch(model, 3) for model in models]))
    assert estimate == pytest.approx(consensus_distance(models), rel=4 * np.sqrt(2 / SKETCHED / 19))


def test_a_round_counts_when_all_peers_have_told_and_the_end_is_exact_if_models_were_told(tmp_path: Path) -> None:
    facts = [
        told(1, "c000", 0.0, 0.0), told(1, "c001", 2.0, 0.0),
        told(2, "c001", 2.0, 4.0), told(2, "c000", 0.0, 0.0),
        told(3, "c001", 9.0, 9.0),
    ]  # fmt: skip
    with reader_of(tmp_path / "sketches.db", facts) as reader:
        assert consensus_over_rounds(reader) == [(1, 1.0), (2, 5.0)]
        assert last_consensus(reader) == Consensus(5.0, True, 0.0), "a model of two parameters is its own sketch"
    facts += [told(3, "c000", 0.0, 0.0, name=FINAL), told(3, "c001", 6.0, 0.0, name=FINAL)]
    with reader_of(tmp_path / "models.db", facts) as reader:
        assert last_consensus(reader) == Consensus(9.0, True, 0.0)
    wide = [told(1, peer, *[value] * SKETCHED) for peer, value in (("c000", 0.0), ("c001", 2.0))]
    with reader_of(tmp_path / "wide.db", wide) as reader:
        assert last_consensus(reader) == Consensus(float(SKETCHED), False, np.sqrt(2 / SKETCHED))
    with reader_of(tmp_path / "nothing.db", []) as reader:
        assert last_consensus(reader) is None and consensus_over_rounds(reader) == []


def test_peers_tell_sketches_at_each_evaluation_and_models_at_the_end_unless_they_shall_not(tmp_path: Path) -> None:
    tables = description(**(AMONG | PEERS["sync"]), run__eval_every=2)
    with record_of(tmp_path / "record.db", tables) as reader:
        assert [round for round, _ in consensus_over_rounds(reader)] == [2, 4]
        assert len(reader.rows("measures", name=FINAL)) == 6
        (last,) = [distance for round, distance in consensus_over_rounds(reader) if round == 4]
        exact = last_consensus(reader)
    assert exact is not None and exact.is_exact and exact.distance == pytest.approx(last, rel=0.4)
    silent = description(**(AMONG | PEERS["sync"]), record__consensus=False)
    with record_of(tmp_path / "silent.db", silent) as reader:
        assert last_consensus(reader) is None


def test_averaging_brings_models_together_and_the_last_pair_is_seen(tmp_path: Path) -> None:
    """On the full graph of equal shares D-PSGD averages all: whoever mixes has the same model as all others."""
    tables = description(**(AMONG | {"algorithm": {"name": "dpsgd"}, "topology": {"name": "full"}}))
    with record_of(tmp_path / "record.db", tables) as reader:
        last = last_consensus(reader)
    assert last is not None and last.distance < 1e-12


def test_staleness_has_a_row_per_peer_and_neighbour_in_seconds(tmp_path: Path) -> None:
    ages_s = {("c001", "c000"): [0.0, 3.0], ("c000", "c001"): [1.0]}
    facts = [
        ("measures", round, peer, f"age of {neighbour}, s", age_s)
        for (peer, neighbour), own in ages_s.items()
        for round, age_s in enumerate(own, 1)
    ]
    expected = [Staleness("c000", "c001", 1, 1.0, 1.0), Staleness("c001", "c000", 2, 1.5, 3.0)]
    with reader_of(tmp_path / "record.db", [*facts, ("measures", 1, "c000", "age", 7)]) as reader:
        assert staleness_per_edge(reader) == expected


def test_the_picture_of_consensus_is_logarithmic_where_distances_differ_by_much_and_none_is_0() -> None:
    def scale(*distances: float) -> str:
        scale: str = consensus_figure(list(enumerate(distances, 1))).axes[0].get_yscale()
        return scale

    assert scale(1.0, 2.0, 3.0) == "linear"
    assert scale(1.0, 0.01, 1e-5) == "log"
    assert scale(1.0, 0.01, 0.0) == "linear"
