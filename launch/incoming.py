"""The launcher's end of checkpoints that processes of other machines write: files that come in pieces."""

import os
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from nodes.kept_files import place_of, unfinished_of


class Incoming:
    """Puts pieces together, and gives a file its name when it is what its writer says."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the checkpoints."""
        self._folder = folder
        self._hashers: dict[tuple[int, str], Any] = {}
        """By round and name: the sha256 of what has come of a file so far."""

    def take(self, round: int, name: str, piece: bytes) -> None:
        """The next piece of a file has come."""
        unfinished, is_first = unfinished_of(self._folder, round, name), (round, name) not in self._hashers
        if is_first:
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            self._hashers[round, name] = sha256()
        with unfinished.open("wb" if is_first else "ab") as file:
            file.write(piece)
        self._hashers[round, name].update(piece)

    def accept(self, round: int, digests: Mapping[str, str]) -> list[str]:
        """These files of a checkpoint are said to be whole; what is wrong with those that are not as it is said."""
        flaws = []
        for name, digest in digests.items():
            hasher, place = self._hashers.pop((round, name), None), place_of(self._folder, round, name)
            if hasher is None:
                flaws += [] if place.exists() else [f"{name} after round {round} has not come"]
            elif hasher.hexdigest() != digest:
                flaws.append(f"{name} after round {round} has another checksum than it is said to have")
            else:
                self._finish(unfinished_of(self._folder, round, name), place)
        if flaws:
            shutil.rmtree(place_of(self._folder, round, ""), ignore_errors=True)  # nobody can go on from there
        return flaws

    def _finish(self, unfinished: Path, place: Path) -> None:
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(place)
