"""MNIST: 60,000 + 10,000 images of 28 x 28 pixels, 10 classes (LeCun, Cortes, Burges)."""

from pathlib import Path

from pflsim.data.idx_images import idx_images
from pflsim.data.loading import Dataset


def mnist(directory: Path) -> Dataset:
    """Reads `MNIST/raw` as torchvision lays it out, plain or .gz; images [1, 28, 28]."""
    folders = [directory / "MNIST" / "raw", directory / "MNIST"]
    return idx_images("mnist", directory, folders, ("train", "t10k"), classes=10)
