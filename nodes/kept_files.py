"""Where the files of checkpoints go and come from: a folder, or the recorder, for who has no disk in common with it."""

import io
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from pflsim.messages.journal import Recorder

PIECE = "piece"
"""The fact (PIECE, round, name, bytes) is the next part of a file; when the file is whole, its digest is told."""
PIECE_BYTES = 1 << 22
"""No larger, so that nothing that is urgent has to wait long behind one."""


class Files(Protocol):
    """The files of checkpoints, as actors see them."""

    def writing(self, round: int, name: str) -> AbstractContextManager[BinaryIO]:
        """A new file of the checkpoint after `round`; it is whole when the with-block has ended."""

    def reading(self, round: int, name: str) -> BinaryIO:
        """A file that is whole."""


class Folder:
    """Files that lie in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def writing(self, round: int, name: str) -> Iterator[BinaryIO]:
        """A new file, which has its name when it is on the disk as a whole."""
        unfinished = unfinished_of(self._folder, round, name)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(place_of(self._folder, round, name))

    def reading(self, round: int, name: str) -> BinaryIO:
        """A file that is whole."""
        return place_of(self._folder, round, name).open("rb")


class HandedIn(Folder):
    """Files that are read from a folder of this machine, and written by handing them to the recorder."""

    def __init__(self, folder: Path, facts: Recorder) -> None:
        super().__init__(folder)
        self._facts = facts

    @contextmanager
    def writing(self, round: int, name: str) -> Iterator[BinaryIO]:
        """A new file, all of which has been sent in the end."""
        with io.BufferedWriter(_Pieces(self._facts, round, name), PIECE_BYTES) as file:
            yield file


class _Pieces(io.RawIOBase):
    """Tells what is written, cut to size."""

    def __init__(self, facts: Recorder, round: int, name: str) -> None:
        self._facts, self._round, self._name = facts, round, name

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        piece = bytes(memoryview(content)[:PIECE_BYTES])  # type: ignore[arg-type]
        self._facts.tell(PIECE, self._round, self._name, piece)
        self._facts.flush()
        return len(piece)


def place_of(folder: Path, round: int, name: str) -> Path:
    """Where a file of a checkpoint lies."""
    return folder / f"{round:06d}" / name


def unfinished_of(folder: Path, round: int, name: str) -> Path:
    """Where it lies as long as it is not whole."""
    return place_of(folder, round, f"{name}.unfinished")
