"""Data sets as they lie on disk, their scaling, and the `[data]` table."""

import gzip
import os
import subprocess
import sys
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat
from torchvision import datasets

from pflsim import catalogue
from pflsim.data import download
from pflsim.data.loading import load, settings
from pflsim.data.partition import Partition
from pflsim.data.scaling import scaled
from pflsim.errors import DescriptionError, RunFailed

REAL = os.environ.get("PFLSIM_DATA")


def real(name: str, *, clients: int = 10, **table: Any) -> Any:
    """The real data set, or a skipped test where it is not."""
    if not REAL:
        pytest.skip("PFLSIM_DATA does not point at the real data sets")
    try:
        return load({"name": name, "dir": REAL, **table}, 0, clients)
    except DescriptionError as problem:
        if "gets it" not in str(problem):
            raise
        pytest.skip(f"{name} is not in PFLSIM_DATA")


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, prefixes: dict[str, int], *, zipped: bool = False, labels: int = 10) -> None:
    """Files of `prefixes[prefix]` images each, image i being filled with i and labelled i modulo `labels`."""
    folder.mkdir(parents=True)
    for prefix, n in prefixes.items():
        images = np.broadcast_to(np.arange(n)[:, None, None], (n, 28, 28))
        content = {"images-idx3": idx_bytes(images), "labels-idx1": idx_bytes(np.arange(n) % labels)}
        for kind, data in content.items():
            name = f"{prefix}-{kind}-ubyte" + (".gz" if zipped else "")
            (folder / name).write_bytes(gzip.compress(data) if zipped else data)


def held(partition: Partition) -> list[int]:
    return sorted(np.concatenate([part.all for part in partition.parts]).tolist())


def test_loading_the_digits_imports_neither_torch_nor_torchvision() -> None:
    code = (
        "import sys; from pflsim.data.loading import load; load({'name': 'digits'}, 0, 4); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'torchvision')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_digits_for_40_clients_are_the_default_study() -> None:
    data = load({"name": "digits", "partition": {"name": "shards", "classes": 3}}, 0, 40)
    assert (data.name, data.classes, data.shape) == ("digits", 10, (1, 8, 8))
    assert data.x.shape == (1797, 1, 8, 8) and data.x.dtype == np.float32
    assert (data.x.min(), data.x.max()) == (0.0, 1.0)
    assert data.y.dtype == np.int64 and data.y[:10].tolist() == list(range(10))
    assert (data.report.train, data.report.test) == ((33, 33, 33.0), (11, 11, 11.0))
    assert data.report.label_sets[:2] == ((0, 1, 2), (1, 2, 3))


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_is_read_plain_or_zipped(tmp_path: Path, zipped: bool) -> None:
    write_idx(tmp_path / "MNIST" / "raw", {"train": 40, "t10k": 20}, zipped=zipped)
    data = load({"name": "mnist", "dir": str(tmp_path)}, 0, 2)
    assert data.x.shape == (40, 1, 28, 28)
    assert np.array_equal(data.x[3], np.full((1, 28, 28), np.float32(3 / 255)))
    assert data.y.tolist() == [i % 10 for i in range(40)]


def test_test_rows_join_the_pool_or_are_dealt_out_or_stay_away(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST" / "raw", {"train": 40, "t10k": 20})
    table = {"name": "mnist", "dir": str(tmp_path)}
    assert held(load(table, 0, 2).partition) == list(range(40))
    everything = load({**table, "pool": "all"}, 0, 2)
    assert len(everything.x) == 60 and held(everything.partition) == list(range(60))
    official = load({**table, "test": "official"}, 0, 2)
    tests = np.sort(np.concatenate([part.test for part in official.partition.parts]))
    assert len(official.x) == 60 and tests.tolist() == list(range(40, 60))
    assert official.y[40:].tolist() == [i % 10 for i in range(20)]
    limited = load({**table, "pool_limit": 12}, 0, 2)
    assert len(limited.x) == 12 and held(limited.partition) == list(range(12))


def test_debians_fashion_mnist_is_found_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "debian", {"train": 40, "t10k": 20}, zipped=True)
    monkeypatch.setattr("pflsim.datasets.fashion_mnist._DEBIAN", tmp_path / "debian")
    monkeypatch.delenv("PFLSIM_DATA", raising=False)
    assert len(load({"name": "fashion-mnist"}, 0, 2).x) == 40


def test_emnist_takes_the_test_file_alone_and_numbers_letters_from_0(tmp_path: Path) -> None:
    write_idx(tmp_path / "EMNIST" / "raw", {"emnist-letters-test": 54}, labels=27)
    labels = tmp_path / "EMNIST" / "raw" / "emnist-letters-test-labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(1 + np.arange(54) % 26))
    table = {"name": "emnist", "dir": str(tmp_path), "split": "letters", "source": "test"}
    data = load(table, 0, 2)
    assert (data.classes, data.y.min(), data.y.max(), len(data.x)) == (26, 0, 25, 54)
    with pytest.raises(DescriptionError, match='source = "test"'):
        load({**table, "source": "train"}, 0, 2)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "svhn", "emnist", "har"])
def test_missing_files_are_named_with_the_command_that_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("pflsim.datasets.fashion_mnist._DEBIAN", tmp_path / "none")
    monkeypatch.setenv("PFLSIM_DATA", str(tmp_path))
    with pytest.raises(DescriptionError, match=f"make data DATA={name}") as refused:
        load({"name": name}, 0, 2)
    assert refused.value.key == "data.dir"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (idx_bytes(np.zeros((5, 28, 28)))[:-1], "get it again"),
        (b"<html>not found</html>", "not an idx file"),
        (b"", "not an idx file"),
        (idx_bytes(np.zeros((6, 28, 28))), "do not belong together"),
    ],
)
def test_a_damaged_idx_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    write_idx(tmp_path / "MNIST" / "raw", {"train": 5, "t10k": 5})
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(DescriptionError, match=reason):
        load({"name": "mnist", "dir": str(tmp_path)}, 0, 2)


def test_a_damaged_zipped_file_is_refused(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST" / "raw", {"train": 5, "t10k": 5}, zipped=True)
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DescriptionError, match="cannot be read"):
        load({"name": "mnist", "dir": str(tmp_path)}, 0, 2)


def test_cifar10_is_read_from_an_archive_with_channels_first(tmp_path: Path) -> None:
    x = np.arange(6 * 32 * 32 * 3).reshape(6, 32, 32, 3).astype(np.uint8)
    y = np.arange(6)[:, None]
    np.savez(tmp_path / "cifar10.npz", x_train=x[:4], y_train=y[:4], x_test=x[4:], y_test=y[4:])
    data = load({"name": "cifar10", "dir": str(tmp_path), "pool": "all"}, 0, 2)
    assert data.shape == (3, 32, 32) and data.y.tolist() == list(range(6))
    assert data.x[5, 2, 7, 9] == np.float32(int(x[5, 7, 9, 2]) / 255)


def test_cifar10_batches_that_are_not_the_published_ones_are_never_opened(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(DescriptionError, match="checksums"):
        load({"name": "cifar10", "dir": str(tmp_path)}, 0, 2)


def test_svhn_is_read_through_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.arange(32 * 32 * 3 * 8).reshape(32, 32, 3, 8).astype(np.uint8)
    for part in ("train", "test"):
        savemat(tmp_path / f"{part}_32x32.mat", {"X": pixels, "y": np.array([[10], *([i] for i in range(1, 8))])})
    table = {"name": "svhn", "dir": str(tmp_path)}
    with pytest.raises(DescriptionError, match="checksum"):
        load(table, 0, 2)
    unchecked = {part: ["", f"{part}_32x32.mat", None] for part in ("train", "test")}
    monkeypatch.setattr(datasets.SVHN, "split_list", unchecked)
    data = load(table, 0, 2)
    assert data.shape == (3, 32, 32) and data.y.tolist() == list(range(8))
    assert data.x[6, 1, 4, 5] == np.float32(int(pixels[4, 5, 1, 6]) / 255)


def write_har(folder: Path) -> None:
    for part, subjects in (("train", (1, 1, 3, 3)), ("test", (2, 2))):
        (folder / part).mkdir(parents=True)
        rows = [" ".join(f"{subject + column / 1000: .7e}" for column in range(561)) for subject in subjects]
        (folder / part / f"X_{part}.txt").write_text("\n".join(f" {row}" for row in rows) + "\n")
        (folder / part / f"y_{part}.txt").write_text("\n".join("61"[i % 2] for i in range(len(subjects))))
        (folder / part / f"subject_{part}.txt").write_text("\n".join(map(str, subjects)) + "\n")


def test_har_is_read_as_published_with_a_client_per_subject(tmp_path: Path) -> None:
    write_har(tmp_path / "UCI HAR Dataset")
    data = load({"name": "har", "dir": str(tmp_path), "partition": {"name": "natural"}}, 0, 3)
    assert data.x.shape == (6, 561) and data.classes == 6
    assert data.y.tolist() == [5, 0, 5, 0, 5, 0]
    assert data.x[4, 10] == np.float32(2.01)
    assert [sorted(part.all.tolist()) for part in data.partition.parts] == [[0, 1], [4, 5], [2, 3]]
    (tmp_path / "UCI HAR Dataset" / "train" / "y_train.txt").write_text("1\n2\n")
    with pytest.raises(DescriptionError, match="get the files again"):
        load({"name": "har", "dir": str(tmp_path)}, 0, 2)


def save(path: Path, **arrays: Any) -> dict[str, Any]:
    np.savez(path, **arrays)
    return {"name": "npz", "file": path.name, "dir": str(path.parent)}


def test_your_own_archive_may_name_its_clients(tmp_path: Path) -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
    table = save(tmp_path / "own.npz", x=x, y=y, client=np.array([5, 5, 5, 2, 2, 2]))
    data = load({**table, "partition": {"name": "natural"}}, 0, 2)
    assert np.array_equal(data.x, x.astype(np.float32)) and data.classes == 3
    assert [sorted(part.all.tolist()) for part in data.partition.parts] == [[3, 4, 5], [0, 1, 2]]
    assert load({**table, "classes": 7}, 0, 2).classes == 7


def test_your_own_archive_may_have_a_test_part_and_images_with_channels_last(tmp_path: Path) -> None:
    x = np.arange(4 * 5 * 6 * 3).reshape(4, 5, 6, 3).astype(np.uint8)
    table = save(tmp_path / "own.npz", x_train=x, y_train=[0, 1, 0, 1], x_test=x[:2], y_test=[0, 1])
    data = load({**table, "channels_last": True, "test": "official"}, 0, 2)
    assert data.x.shape == (6, 3, 5, 6)
    assert data.x[1, 2, 3, 4] == np.float32(int(x[1, 3, 4, 2]) / 255)
    assert sorted(part.test.tolist() for part in data.partition.parts) in ([[4], [5]], [[4, 5], []])


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x": np.zeros((3, 2))}, "must have the arrays x and y"),
        ({"x": np.zeros((3, 2)), "y": np.array([0, 1])}, "y does not have one value"),
        ({"x": np.zeros((3, 2)), "y": np.array([0, 1, -1])}, "labels must be whole"),
        ({"x": np.zeros((3, 2)), "y": np.array(["a", "b", "c"])}, "y must be"),
        (
            {"x": np.zeros((3, 2)), "y": np.array([0, 1, 0]), "client": np.array([0, 1])},
            "client does not have one value",
        ),
        ({"x": np.zeros((3, 2)), "y": np.array([0, 1, 0]), "x_test": np.zeros((1, 2))}, "x_test must be"),
        ({"x": np.array([[0.0], [np.nan]]), "y": np.array([0, 1])}, "not finite"),
        ({"x": np.array([{}, {}], object), "y": np.array([0, 1])}, "cannot be read"),
    ],
)
def test_an_archive_that_does_not_fit_together_is_refused(tmp_path: Path, arrays: dict[str, Any], reason: str) -> None:
    with pytest.raises(DescriptionError, match=reason):
        load(save(tmp_path / "own.npz", **arrays), 0, 1)


def test_a_file_that_is_no_archive_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.npz").write_bytes(b"nothing")
    for file, reason in (("no.npz", "npz archive"), ("none.npz", "no such file")):
        with pytest.raises(DescriptionError, match=reason):
            load({"name": "npz", "file": file, "dir": str(tmp_path)}, 0, 1)


def test_scaling_gives_exact_numbers() -> None:
    x, x_test = np.array([[0, 51], [255, 51]], np.uint8), np.array([[102, 0]], np.uint8)
    unit = scaled(x, x_test, "unit", 255.0)
    assert unit.dtype == np.float32
    assert np.array_equal(unit, (np.array([[0, 51], [255, 51], [102, 0]]) / 255).astype(np.float32))
    half = scaled(x, x_test, "half", 255.0)
    assert np.allclose(half, [[-1, -0.6], [1, -0.6], [-0.2, -1]], atol=1e-7)
    pixel = scaled(x, x_test, "pixel", 255.0)
    expected = [[-127.5 / 127.501, 0], [127.5 / 127.501, 0], [-25.5 / 127.501, -51 / 0.001]]
    assert np.allclose(pixel, expected, rtol=1e-6)
    floats = np.array([[0.5, -3.0]])
    assert np.array_equal(scaled(floats, None, "unit", None), floats.astype(np.float32))


def test_synthetic_contexts_disagree_about_the_labels() -> None:
    table = {"name": "synthetic", "samples": 800, "partition": {"name": "by-context"}, "separation": 20.0}
    data = load(table, 0, 8)
    assert data.partition.notes["contexts"] == [0, 1, 2, 3, 0, 1, 2, 3]
    row = np.arange(800)
    cloud = (data.y - row % 4) % 4
    centres = np.stack([data.x[cloud == c].mean(0) for c in range(4)])
    nearest = ((data.x[:, None] - centres) ** 2).sum(2).argmin(1)
    assert np.array_equal(nearest, cloud)  # the clouds are shared, the names of the classes are not
    assert np.bincount(data.y).tolist() == [200] * 4
    assert load({**table, "seed": 1}, 0, 8).x[0, 0] != data.x[0, 0]
    with pytest.raises(DescriptionError, match="shift"):
        load({**table, "contexts": 5}, 0, 8)


@pytest.mark.parametrize("rotated", [False, True])
def test_a_quadratic_client_has_the_hessian_and_minimum_that_the_text_gives(rotated: bool) -> None:
    table = {
        "name": "quadratic",
        "partition": {"name": "natural"},
        "test_share": 0.0,
        "rotated": rotated,
        "copies": 3,
        "condition": 4.0,
    }
    data = load(table, 0, 4)
    assert data.classes == 0 and data.y.dtype == np.float32
    for part in data.partition.parts:
        a, y = data.x[part.train].astype(np.float64), data.y[part.train].astype(np.float64)
        hessian, b = a.T @ a / len(a), np.linalg.lstsq(a, y)[0]
        assert (len(a), len(part.test)) == (12, 0)
        assert np.allclose(np.linalg.eigvalsh(hessian), [0.25, 0.5, 0.75, 1.0], atol=1e-6)
        w = np.array([1.0, -2.0, 0.5, 3.0])
        loss = 0.5 * np.mean((a @ w - y) ** 2)
        assert abs(loss - 0.5 * (w - b) @ hessian @ (w - b)) < 1e-6


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({}, "data.name"),
        ({"name": "digit"}, "data.name"),
        ({"name": "digits", "scalling": "unit"}, "data.scalling"),
        ({"name": "digits", "scaling": "pixels"}, "data.scaling"),
        ({"name": "digits", "split": "byclass"}, "data.split"),
        ({"name": "digits", "test_share": 1.0}, "data.test_share"),
        ({"name": "digits", "validation": -0.1}, "data.validation"),
        ({"name": "digits", "pool_limit": 0}, "data.pool_limit"),
        ({"name": "digits", "downsample": {"keep": 0.0}}, "data.downsample.keep"),
        ({"name": "digits", "downsample": {"kept": 0.1}}, "data.downsample.kept"),
        ({"name": "digits", "pool": "all", "test": "official"}, "data.test"),
        ({"name": "npz"}, "data.file"),
        ({"name": "emnist", "split": "bychance"}, "data.split"),
    ],
)
def test_a_wrong_data_table_is_refused_by_its_key_before_anything_is_read(table: dict[str, Any], key: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        settings(table)
    assert refused.value.key == key


def test_the_official_test_part_must_be_there_to_be_used() -> None:
    with pytest.raises(DescriptionError, match="no official test part"):
        load({"name": "digits", "test": "official"}, 0, 4)


def test_validation_parts_are_folds_that_do_not_overlap_and_leave_the_test_part_as_it_is() -> None:
    common = {"name": "digits", "partition": {"name": "shards", "classes": 3}, "validation": 0.25}
    folds = [load(common | {"validation_part": part}, 3, 10).partition.parts for part in range(4)]
    for client in range(10):
        parts = [fold[client] for fold in folds]
        whole = load(common | {"validation": 0.0}, 3, 10).partition.parts[client].train
        together = np.concatenate([part.validation for part in parts])
        assert len(np.unique(together)) == len(together) >= len(whole) - 3, "one of each label is never set aside"
        assert max(abs(len(part.validation) - len(whole) / 4) for part in parts) <= 4
        for part in parts:
            assert np.array_equal(np.sort(np.concatenate([part.train, part.validation])), whole)
            assert np.array_equal(part.test, parts[0].test)
    assert load(common, 3, 10).partition.digest == load(common | {"validation_part": 0}, 3, 10).partition.digest
    with pytest.raises(DescriptionError, match=r"data.validation_part = 4"):
        load(common | {"validation_part": 4}, 3, 10)


def test_the_same_seed_gives_the_same_digest_and_another_another() -> None:
    table = {"name": "digits", "partition": {"name": "dirichlet", "alpha": 0.5}, "validation": 0.1}
    digests = [load(table, seed, 10).partition.digest for seed in (3, 3, 4)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(("key", "most"), [("validation", "data.validation"), ("test_share", "data.test_share")])
def test_a_share_that_leaves_nothing_to_train_on_is_refused_with_what_is_possible(key: str, most: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        load({"name": "digits", key: 0.999}, 0, 40)
    said = str(problem.value)
    assert said.startswith(f"{most} = 0.999: leaves nothing to train on: the largest client has ")
    possible = float(said.rpartition(" ")[2])
    assert 0.9 < possible < 0.999
    parts = load({"name": "digits", key: possible}, 0, 40).partition.parts
    assert all(len(part.train) >= 1 for part in parts)


def test_every_data_set_of_the_room_can_be_found() -> None:
    for name in catalogue.names("datasets"):
        assert callable(catalogue.find("datasets", name, "data.name"))


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(datasets, "MNIST", unreachable)
    with pytest.raises(RunFailed, match=r"no route to host.*by hand"):
        download.download("mnist", tmp_path / "new")
    assert download.main(["mnist", str(tmp_path)]) == 1
    assert download.main(["mnits", str(tmp_path)]) == 2
    assert download.main([]) == 2
    assert download.main(["digits"]) == 0


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_images_are_those_that_torchvision_reads(name: str) -> None:
    data = real(name, pool="all", clients=40, partition={"name": "disjoint-range"})
    kind = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}[name]
    for rows, train in ((slice(0, 60_000), True), (slice(60_000, 70_000), False)):
        theirs = getattr(datasets, kind)(REAL, train=train)
        assert np.array_equal((data.x[rows, 0] * 255).round(), theirs.data.numpy())
        assert np.array_equal(data.y[rows], theirs.targets.numpy())
    assert data.report.train[0] >= 300 and data.report.overlap == 1


def test_real_mnist_standardised_per_pixel_has_mean_0() -> None:
    data = real("mnist", pool="all", scaling="pixel", clients=100, partition={"name": "fedu-style"})
    assert abs(float(data.x.mean())) < 1e-5
    assert data.x[:, 0, 14, 14].std() == pytest.approx(1, abs=1e-3)


def test_real_cifar10_fits_20_clients_of_3_classes() -> None:
    recipe = {"name": "fedu-style", "classes": 3, "multiplier": 1, "extra_low": 300, "extra_high": 600}
    data = real("cifar10", pool="all", scaling="half", clients=20, partition=recipe)
    assert data.x.shape == (60_000, 3, 32, 32)
    assert (data.x.min(), data.x.max()) == (-1, 1)
    assert np.bincount(data.y).tolist() == [6000] * 10


def test_real_emnist_for_500_clients() -> None:
    data = real("emnist", source="test", clients=500, partition={"name": "dirichlet"})
    assert (len(data.x), data.classes, int(data.y.max())) == (116_323, 62, 61)
    assert data.report.train == (174, 174, 174.0)


def test_real_har_has_30_subjects() -> None:
    data = real("har", clients=30, partition={"name": "natural"})
    assert data.shape == (561,) and data.report.classes == (6, 6, 6.0)
    assert data.report.train[0] > 200 and data.report.train[1] < 320
