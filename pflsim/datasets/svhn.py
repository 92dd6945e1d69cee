"""SVHN, cropped digits: 73,257 + 26,032 colour images of 32 x 32 pixels, 10 classes (Netzer et al. 2011)."""

from pathlib import Path

import numpy as np

from pflsim.data.files import missing
from pflsim.data.loading import Dataset
from pflsim.errors import DescriptionError


def svhn(directory: Path) -> Dataset:
    """Reads `train_32x32.mat` and `test_32x32.mat` through torchvision, which compares checksums; images [3,
    32, 32].

    Classes are of very unequal size (digit 1: 19 %, digit 9: 6 %).
    """
    for part in ("train", "test"):
        if not (directory / f"{part}_32x32.mat").is_file():
            missing("svhn", directory, f"{part}_32x32.mat")
    from torchvision.datasets import SVHN

    try:
        train, test = SVHN(directory, split="train"), SVHN(directory, split="test")
    except RuntimeError as problem:
        reason = "train_32x32.mat or test_32x32.mat is not the published file (its checksum differs)"
        raise DescriptionError("data.dir", str(directory), reason) from problem
    x, x_test = (np.ascontiguousarray(part.data) for part in (train, test))
    y, y_test = (np.asarray(part.labels).astype(np.int64) for part in (train, test))
    return Dataset("svhn", x, y, 10, x_test, y_test, full_scale=255.0)
