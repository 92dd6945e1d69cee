"""Gets data sets from the network: `python -m pflsim.data.download NAME DIRECTORY`, as `make data` does."""

import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path

from pflsim.catalogue import near_match
from pflsim.data.files import data_directory
from pflsim.errors import DescriptionError, PflsimError, RunFailed

_HAR = "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip"
_TORCHVISION: dict[str, list[tuple[str, dict[str, object]]]] = {
    "mnist": [("MNIST", {"train": True})],
    "fashion-mnist": [("FashionMNIST", {"train": True})],
    "cifar10": [("CIFAR10", {"train": True})],
    "svhn": [("SVHN", {"split": "train"}), ("SVHN", {"split": "test"})],
    "emnist": [("EMNIST", {"split": "byclass", "train": True})],
}
_NOTHING_TO_GET = ("digits", "synthetic", "quadratic")


def download(name: str, directory: Path) -> str:
    """Put the files of data set `name` into `directory`, unless they are there; returns one line about it.

    Raises DescriptionError for a name that cannot be downloaded, RunFailed where the network or the disk
    fails.
    """
    name = name.replace("_", "-")
    if name in _NOTHING_TO_GET:
        return f"{name} needs no download"
    if name not in (*_TORCHVISION, "har"):
        raise DescriptionError("DATA", name, near_match(name, [*sorted(_TORCHVISION), "har"]))
    get: Callable[[Path], None] = _get_har if name == "har" else lambda to: _get_through_torchvision(name, to)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        get(directory)
    except (urllib.error.URLError, OSError, RuntimeError) as problem:
        advice = f"look at the network and the disk, or put the files into {directory} by hand"
        raise RunFailed(f"download of {name}", f"{str(problem).strip()}; {advice}") from problem
    return f"{name} is in {directory}"


def _get_through_torchvision(name: str, directory: Path) -> None:
    from torchvision import datasets

    for kind, which in _TORCHVISION[name]:
        getattr(datasets, kind)(directory, download=True, **which)


def _get_har(directory: Path) -> None:
    from torchvision.datasets.utils import download_and_extract_archive, extract_archive

    if not (directory / "UCI HAR Dataset" / "train" / "X_train.txt").is_file():
        download_and_extract_archive(_HAR, str(directory), filename="har.zip")
        extract_archive(str(directory / "UCI HAR Dataset.zip"), str(directory))


def main(arguments: list[str]) -> int:
    """The command: exit status 0 done, 1 the download failed, 2 there is no such data set."""
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m pflsim.data.download NAME [DIRECTORY]", file=sys.stderr)
        return 2
    try:
        print(download(arguments[0], data_directory(arguments[1] if len(arguments) == 2 else None)))
    except PflsimError as problem:
        print(problem, file=sys.stderr)
        return 2 if isinstance(problem, DescriptionError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
