"""Public data: set aside before the pool is divided, nobody's own, and in no test part."""

from pathlib import Path

import numpy as np
import pytest

from pflsim.data.loading import Data, load
from pflsim.errors import DescriptionError


def archive(folder: Path) -> dict[str, object]:
    """60 rows that can be told apart, with 9 official test rows."""
    rng = np.random.Generator(np.random.Philox(1))
    x, x_test = np.arange(60.0)[:, None], 100 + np.arange(9.0)[:, None]
    labels = {"y": rng.permutation(60) % 3, "y_test": np.arange(9) % 3}
    owners = {"client": np.arange(60) % 4, "client_test": np.arange(9) % 4}
    np.savez(folder / "rows.npz", x=x.astype(np.float32), x_test=x_test.astype(np.float32), **labels, **owners)
    return {"name": "npz", "file": "rows.npz", "dir": str(folder)}


def held(data: Data) -> np.ndarray:
    return np.concatenate([part.all for part in data.partition.parts])


@pytest.mark.parametrize("partition", [{"name": "iid"}, {"name": "natural"}])
@pytest.mark.parametrize("test", ["within", "official"])
def test_public_rows_are_nobodys_and_everybody_keeps_its_own(
    tmp_path: Path, test: str, partition: dict[str, str]
) -> None:
    table = archive(tmp_path) | {"public_share": 0.2, "test": test, "partition": partition}
    data = load(table, seed=1, clients=4)
    assert len(data.public) == 12
    assert not set(data.public) & set(held(data))
    public = set(data.x[data.public].ravel())
    assert len(public) == 12 and max(public) < 60, "they are training rows, each once"
    assert not public & set(data.x[held(data)].ravel())
    if partition["name"] == "natural" and test == "within":
        for part in data.partition.parts:
            assert len({int(value) % 4 for value in data.x[part.all].ravel()}) == 1
    if test == "official":
        assert {value for part in data.partition.parts for value in data.x[part.test].ravel()} <= set(range(100, 109))


def test_without_a_share_nothing_is_set_aside(tmp_path: Path) -> None:
    table = archive(tmp_path)
    for share in ({}, {"public_share": 0.0}):
        data = load(table | share, seed=1, clients=4)
        assert (len(data.public), len(data.x)) == (0, 60)
        assert data.partition.digest == load(table, seed=1, clients=4).partition.digest


def test_which_rows_are_public_depends_on_the_seed(tmp_path: Path) -> None:
    table = archive(tmp_path) | {"public_share": 0.2}
    first, again, other = (load(table, seed=seed, clients=4) for seed in (1, 1, 2))
    assert np.array_equal(first.x[first.public], again.x[again.public])
    assert not np.array_equal(first.x[first.public], other.x[other.public])


def test_pixels_are_scaled_by_the_rows_that_are_not_public(tmp_path: Path) -> None:
    table = archive(tmp_path) | {"public_share": 0.2, "scaling": "pixel"}
    data = load(table, seed=1, clients=4)
    own = np.setdiff1d(np.arange(60), data.public)
    assert abs(float(data.x[own].mean())) < 1e-6
    assert abs(float(data.x[data.public].mean())) > 1e-3


def test_a_share_of_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"data.public_share = 1.0: must be at least 0 and below 1"):
        load(archive(tmp_path) | {"public_share": 1.0}, seed=1, clients=4)
