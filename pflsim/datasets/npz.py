"""Your own data: an .npz archive with arrays x and y, and optionally a test part and a client per row."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pflsim.data.files import read_npz
from pflsim.data.loading import Dataset
from pflsim.errors import DescriptionError


def npz(directory: Path, *, file: str, classes: int | None = None, channels_last: bool = False) -> Dataset:
    """Reads `file`, a path from the data directory (or an absolute one).

    Arrays: x [n, *shape] (uint8: pixels 0..255; else features) and y [n] (whole: labels from 0; float:
    regression targets), also named x_train and y_train; optional x_test and y_test; optional client [n] (and
    client_test), an id per row that gives natural clients. `classes` is 1 + the largest label unless given;
    `channels_last` turns images [n, height, width, channels] into the [n, channels, height, width] that
    networks take.
    """
    path = directory / file
    if not path.is_file():
        raise DescriptionError("data.file", file, f"there is no such file in the data directory {directory}")
    wanted = (
        ["x", "x_train"],
        ["y", "y_train"],
        ["x_test"],
        ["y_test"],
        ["client", "client_train"],
        ["client_test"],
    )
    x, y, x_test, y_test, client, client_test = read_npz(path, "data.file", wanted)
    if x is None or y is None:
        raise DescriptionError("data.file", file, "must have the arrays x and y (or x_train and y_train)")
    for what, array in (("x", x), ("x_test", x_test)):
        if array is not None and (array.dtype.kind not in "buif" or array.ndim < 2):
            reason = f"{what} must be [n, ...] real numbers, at least one to a row, not {array.dtype} {array.shape}"
            raise DescriptionError("data.file", file, reason)
    y, y_test = _targets(y, file), None if y_test is None else _targets(y_test, file)
    if classes is None:
        both = y if y_test is None else np.concatenate([y, y_test])
        classes = 1 + int(both.max(initial=0)) if y.dtype.kind == "i" else 0
    full_scale = 255.0 if x.dtype == np.uint8 else None
    x = _features(x, channels_last)
    x_test = None if x_test is None else _features(x_test, channels_last)
    return Dataset(path.stem, x, y, classes, x_test, y_test, client, client_test, full_scale=full_scale)


def _targets(y: npt.NDArray[Any], file: str) -> npt.NDArray[Any]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "iubf":
        raise DescriptionError("data.file", file, f"y must be [n] numbers, not {y.dtype} {y.shape}")
    with np.errstate(over="ignore"):
        return y.astype(np.float32 if y.dtype.kind == "f" else np.int64)


def _features(x: npt.NDArray[Any], channels_last: bool) -> npt.NDArray[Any]:
    if channels_last:
        x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
        return x if x.dtype == np.uint8 else x.astype(np.float32)
