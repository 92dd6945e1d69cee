"""Image sets in idx files: the MNIST family."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pflsim.data.files import missing, read_idx
from pflsim.data.loading import Dataset
from pflsim.errors import DescriptionError


def idx_images(
    name: str,
    directory: Path,
    folders: Sequence[Path],
    prefixes: Sequence[str],
    classes: int,
    first_label: int = 0,
) -> Dataset:
    """The data set whose parts have these file name `prefixes`: the training part and, if two, the official
    test part.

    Searches `folders` in order. Raises DescriptionError, with the command that gets them, where files are not
    there.
    """
    parts = [_part(name, directory, folders, prefix, first_label) for prefix in prefixes]
    (x, y), (x_test, y_test) = parts[0], parts[1] if len(parts) > 1 else (None, None)
    return Dataset(name, x, y, classes, x_test, y_test, full_scale=255.0)


def _part(
    name: str, directory: Path, folders: Sequence[Path], prefix: str, first_label: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    images = read_idx(folders, f"{prefix}-images-idx3-ubyte")
    labels = read_idx(folders, f"{prefix}-labels-idx1-ubyte")
    if images is None or labels is None:
        kind = "labels-idx1-ubyte" if images is not None else "images-idx3-ubyte"
        hint = ' (data.source = "test" needs the test file alone)' if name == "emnist" else ""
        missing(name, directory, f"{folders[0].relative_to(directory)}/{prefix}-{kind} (nor .gz){hint}")
    if images.ndim != 3 or labels.shape != (len(images),):
        shapes = f"{prefix}: images {images.shape} and labels {labels.shape} do not belong together"
        raise DescriptionError("data.dir", str(directory), shapes)
    return images[:, None], labels.astype(np.int64) - first_label
