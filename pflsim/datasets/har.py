"""UCI HAR: 30 subjects, 561 smartphone features, 6 activities, 10,299 rows (Anguita et al. 2013)."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pflsim.data.files import missing, read_npz
from pflsim.data.loading import Dataset
from pflsim.errors import DescriptionError

_FOLDERS = ("UCI HAR Dataset", "UCI_HAR_Dataset", "UCI_HAR", ".")


def har(directory: Path) -> Dataset:
    """Reads the published folder (`train/X_train.txt`, `subject_train.txt` ...), else `har.npz` (x, y,
    client).

    Subjects are the natural clients. The published training and test part have different subjects, so both
    are one pool and there is no official test part: every subject's rows are split.
    """
    for folder in (directory / name for name in _FOLDERS):
        if (folder / "train" / "X_train.txt").is_file():
            return _published(folder)
    archive = directory / "har.npz"
    if not archive.is_file():
        missing("har", directory, "UCI HAR Dataset/train/X_train.txt and no har.npz")
    x, y, client = read_npz(archive, "data.dir", (["x"], ["y"], ["client"]))
    if x is None or y is None or client is None:
        raise DescriptionError("data.dir", str(archive), "must have the arrays x, y and client")
    return Dataset("har", x.astype(np.float32), y.astype(np.int64), 6, client=client)


def _published(folder: Path) -> Dataset:
    parts = [_part(folder / part, part) for part in ("train", "test")]
    x, y, subject = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Dataset("har", x, y - 1, 6, client=subject)


def _part(folder: Path, part: str) -> tuple[npt.NDArray[Any], ...]:
    columns = [_numbers(folder / f"{what}_{part}.txt") for what in ("X", "y", "subject")]
    features, labels, subjects = columns
    if len(labels) != len(subjects) or not len(labels) or len(features) % len(labels):
        lengths = f"X has {len(features)} numbers, y {len(labels)} and subject {len(subjects)}: get the files again"
        raise DescriptionError("data.dir", str(folder), lengths)
    rows = features.astype(np.float32).reshape(len(labels), -1)
    return rows, labels.astype(np.int64), subjects.astype(np.int64)


def _numbers(path: Path) -> npt.NDArray[np.float64]:
    try:
        return np.array(path.read_bytes().split(), np.float64)
    except (OSError, ValueError) as problem:
        raise DescriptionError("data.dir", str(path), f"cannot be read: {problem}") from problem
