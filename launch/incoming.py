"""The launcher's end of checkpoints that processes of other machines write: files that come in pieces."""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from launch.checkpoints import MANIFEST
from nodes.kept_files import place_of, unfinished_of


class Incoming:
    """Puts pieces together, and gives a file its name when it is what its writer says."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the checkpoints."""
        self._folder = folder
        self._hashers: dict[tuple[int, str], Any] = {}
        """By round and name: the sha256 of what has come of a file so far."""

    def take(self, round: int, name: str, piece: bytes) -> str:
        """The next piece of a file has come; why it is not wanted, if it is not."""
        if self._is_whole(round):
            return f"a piece of {name} comes when the checkpoint after round {round} is whole"
        unfinished, is_first = unfinished_of(self._folder, round, name), (round, name) not in self._hashers
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb" if is_first else "ab") as file:
            file.write(piece)
        self._hashers.setdefault((round, name), sha256()).update(piece)
        return ""

    def accept(self, round: int, digests: Mapping[str, str]) -> list[str]:
        """These files of a checkpoint are said to be whole; what is wrong with those that are not as it is said."""
        found = [(name, self._flaw_of(round, name, digest)) for name, digest in digests.items()]
        return [f"{name} after round {round} {flaw}" for name, flaw in found if flaw]

    def _flaw_of(self, round: int, name: str, digest: str) -> str:
        """Empty for a file that is what it is said to be, which then has its name."""
        hasher = self._hashers.pop((round, name), None)
        unfinished, place = unfinished_of(self._folder, round, name), place_of(self._folder, round, name)
        if self._is_whole(round):
            return "comes when that checkpoint is whole"
        if hasher is None:  # it was written by a process of this machine, or by nobody
            return "" if place.exists() else "has not come"
        if hasher.hexdigest() != digest or not unfinished.exists():
            return "has another checksum than it is said to have"
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(place)
        return ""

    def _is_whole(self, round: int) -> bool:
        return place_of(self._folder, round, MANIFEST).exists()
