"""Evaluation on a grid of simulated seconds."""

from pathlib import Path

import pytest

from nodes.sequential import run_sequentially
from pflsim.errors import DescriptionError
from pflsim.record.accuracy import over_rounds
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description
from tests.recorded import record_of

NEEDED = {"run__rounds": 12, "run__clients": 3}


def evaluated(path: Path, **settings: object) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """(round, time) of each evaluation, and the ends of all rounds."""
    with record_of(path, description(**(NEEDED | settings))) as reader:
        times = reader.query("SELECT DISTINCT round, now_ns FROM evaluations ORDER BY round")
        return times, dict(reader.query("SELECT round, end_ns FROM rounds"))


@pytest.mark.parametrize("schedule", [{"kind": "sync"}, {"kind": "fedasync", "concurrency": 2}])
def test_the_first_moment_between_rounds_at_or_after_each_grid_point_is_evaluated(
    schedule: dict[str, object], tmp_path: Path
) -> None:
    _, ends_ns = evaluated(tmp_path / "all.db", schedule=schedule)
    grid_ns = 5 * ends_ns[12] // 24  # two and a half rounds
    found, _ = evaluated(tmp_path / "grid.db", schedule=schedule, run__eval_every_s=grid_ns / 1e9)
    points_ns = range(grid_ns, ends_ns[12] + 1, grid_ns)
    expected = {min(round for round, end_ns in ends_ns.items() if end_ns >= point_ns) for point_ns in points_ns}
    assert [round for round, _ in found] == sorted(expected | {12})
    assert all(now_ns == ends_ns[round] for round, now_ns in found)
    assert 4 <= len(found) <= 6


def test_a_round_that_ends_on_a_grid_point_is_evaluated_then(tmp_path: Path) -> None:
    _, ends_ns = evaluated(tmp_path / "all.db")
    found, _ = evaluated(tmp_path / "grid.db", run__eval_every_s=ends_ns[4] / 1e9)
    assert (4, ends_ns[4]) in found
    assert 3 not in dict(found)


def test_a_round_that_passes_several_grid_points_is_evaluated_once(tmp_path: Path) -> None:
    found, ends_ns = evaluated(tmp_path / "grid.db", run__eval_every_s=1e-6)
    assert found == sorted(ends_ns.items())


def test_the_grid_changes_no_digest() -> None:
    digests = {
        run_sequentially(Study(validate(description(**settings)), b"8 bytes.")).finished()["trace_digest"]
        for settings in ({}, {"run__eval_every_s": 0.01})
    }
    assert len(digests) == 1


def test_a_grid_of_nothing_is_refused() -> None:
    with pytest.raises(DescriptionError, match="eval_every_s"):
        validate(description(run__eval_every_s=0.0))


def test_a_point_of_the_course_tells_the_gradients_that_it_has_cost(tmp_path: Path) -> None:
    tables = description(run__clients=4, run__rounds=3, training={"step_size": 0.1, "batch": 10, "local_steps": 3})
    with record_of(tmp_path / "record.db", tables) as reader:
        assert [point.gradients for point in over_rounds(reader)] == [4 * 3 * 10, 2 * 4 * 3 * 10, 3 * 4 * 3 * 10]
