"""CIFAR-10: 50,000 + 10,000 colour images of 32 x 32 pixels, 10 classes (Krizhevsky 2009)."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pflsim.data.files import missing, read_npz
from pflsim.data.loading import Dataset
from pflsim.errors import DescriptionError


def cifar10(directory: Path) -> Dataset:
    """Reads `cifar10.npz` (x_train ... y_test) if there, else `cifar-10-batches-py`; images [3, 32, 32].

    The published batches are pickles: torchvision opens them, and only after comparing their checksums.
    """
    archive = directory / "cifar10.npz"
    if archive.is_file():
        names = ["x_train"], ["y_train"], ["x_test"], ["y_test"]
        x, y, x_test, y_test = (_there(array) for array in read_npz(archive, "data.dir", names))
    else:
        x, y, x_test, y_test = _published(directory)
    return Dataset(
        "cifar10", _channels_first(x), _flat(y), 10, _channels_first(x_test), _flat(y_test), full_scale=255.0
    )


def _published(directory: Path) -> tuple[npt.NDArray[Any], ...]:
    if not (directory / "cifar-10-batches-py").is_dir():
        missing("cifar10", directory, "cifar10.npz and no cifar-10-batches-py")
    from torchvision.datasets import CIFAR10

    try:
        train, test = CIFAR10(directory, train=True), CIFAR10(directory, train=False)
    except RuntimeError as problem:
        reason = "cifar-10-batches-py is incomplete or its checksums are not those of the published files"
        raise DescriptionError("data.dir", str(directory), reason) from problem
    return train.data, np.array(train.targets), test.data, np.array(test.targets)


def _there(array: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    if array is None:
        wanted = "must have the arrays x_train, y_train, x_test and y_test"
        raise DescriptionError("data.dir", "cifar10.npz", wanted)
    return array


def _channels_first(x: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """[n, 32, 32, 3] as [n, 3, 32, 32]; already so is fine, and nothing else is."""
    if x.shape[1:] == (32, 32, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.shape[1:] != (3, 32, 32) or x.dtype != np.uint8:
        wanted = f"images must be uint8 [n, 32, 32, 3], not {x.dtype} {x.shape}"
        raise DescriptionError("data.dir", "cifar10.npz", wanted)
    return np.ascontiguousarray(x)


def _flat(y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return y.reshape(-1).astype(np.int64)
