"""Where the results of a run go: a folder that nobody has used before, taken by making it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pflsim.errors import DescriptionError

MOST_TRIES = 1000


def taken(directory: Path | None, name: str) -> Path:
    """Make `directory`, or, if it is None, results/NAME-TIME (with a number where others began in the same second).

    Raises DescriptionError when it exists, or cannot be made.
    """
    if directory is not None:
        _make(directory)
        return directory
    first = Path("results") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, MOST_TRIES):
        numbered = first if number == 1 else first.with_name(f"{first.name}-{number}")
        if not numbered.exists():
            try:
                _make(numbered)
            except DescriptionError:
                if not numbered.is_dir():
                    raise
            else:
                return numbered
    raise DescriptionError("--out", str(first), f"exists {MOST_TRIES} times; name a folder")


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except FileExistsError as problem:
        expected = "exists already; name a folder that does not"
        raise DescriptionError("--out", str(directory), expected) from problem
    except OSError as problem:
        raise DescriptionError("--out", str(directory), f"cannot be made: {problem.strerror}") from problem


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A path to write to; what lies there afterwards takes the place of `target`, whole or not at all."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        yield unfinished
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
