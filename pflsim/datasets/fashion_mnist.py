"""Fashion-MNIST: 60,000 + 10,000 images of 28 x 28 pixels, 10 classes (Xiao, Rasul, Vollgraf 2017)."""

from pathlib import Path

from pflsim.data.idx_images import idx_images
from pflsim.data.loading import Dataset

# Where the package dataset-fashion-mnist puts the .gz files.
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def fashion_mnist(directory: Path) -> Dataset:
    """Reads `FashionMNIST/raw` as torchvision lays it out or Debian's folder, plain or .gz; [1, 28, 28]."""
    folders = [directory / "FashionMNIST" / "raw", directory / "FashionMNIST", _DEBIAN]
    if directory.name == _DEBIAN.name:
        folders.insert(0, directory)
    return idx_images("fashion-mnist", directory, folders, ("train", "t10k"), classes=10)
