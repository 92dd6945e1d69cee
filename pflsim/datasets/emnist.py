"""EMNIST: handwritten digits and letters, 28 x 28 pixels, 10 to 62 classes (Cohen et al. 2017)."""

from pathlib import Path
from typing import Literal

from pflsim.data.idx_images import idx_images
from pflsim.data.loading import Dataset

_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}


def emnist(
    directory: Path,
    *,
    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "byclass",
    source: Literal["train", "test"] = "train",
) -> Dataset:
    """Reads `EMNIST/raw` as torchvision lays it out, plain or .gz; images [1, 28, 28], transposed as in the
    original.

    With `source = "test"` the official test file is all there is, and becomes the pool (by class: 116,323
    images). Letters are numbered 0..25, not 1..26 as in the files.
    """
    folders = [directory / "EMNIST" / "raw", directory / "EMNIST", directory / "EMNIST" / "raw" / "gzip"]
    prefixes = tuple(f"emnist-{split}-{part}" for part in ("train", "test") if source == "train" or part == "test")
    first_label = 1 if split == "letters" else 0
    return idx_images("emnist", directory, folders, prefixes, _CLASSES[split], first_label)
