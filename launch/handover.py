"""Hosts on other machines get the states of those clients that go on there, from a checkpoint of the launcher.

A host says when it has taken a piece, and gets the next one then: so there is never much on the way, and what says
that a side is still there comes through.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.reception import RemoteHost
from nodes.kept_files import PIECE_BYTES, place_of
from pflsim.errors import RunFailed

FOLDER = "resumed-from"


class Handover:
    """All hosts of a run that goes on, until each has what is its own."""

    def __init__(self, folder: Path, round: int, names: Mapping[RemoteHost, Sequence[str]]) -> None:
        """The files `names` of the checkpoint after `round`, by host, lie in `folder`."""
        self._round = round
        self._pieces = {host: _pieces(folder, round, own) for host, own in names.items()}
        for host in names:
            self._go_on(host)

    @property
    def is_done(self) -> bool:
        """Whether all have all."""
        return not self._pieces

    def hear(self, host: RemoteHost, said: Mapping[str, Any]) -> None:
        """Take what a host says. Raises RunFailed for one that is lost."""
        if said["what"] == "took" and host in self._pieces:
            self._go_on(host)
        elif said["what"] in ("failed", "lost", "leaving"):
            raise RunFailed(host.name, said["reason"])

    def _go_on(self, host: RemoteHost) -> None:
        piece = next(self._pieces[host], None)
        if piece is None:
            del self._pieces[host]
        else:
            host.say("piece", round=self._round, name=piece[0], content=piece[1])


def _pieces(folder: Path, round: int, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        with place_of(folder, round, name).open("rb") as file:
            while content := file.read(PIECE_BYTES):
                yield name, content


class HandedOver:
    """What a host has got of a checkpoint, in a folder that is there as long as it is needed."""

    def __init__(self, logs: Path) -> None:
        """`logs` is where the host keeps its logs; nothing is made before something comes."""
        self.folder = logs / FOLDER
        self.forget()  # whoever was killed had no time for it

    def take(self, said: Mapping[str, Any]) -> None:
        """The next piece. Raises RunFailed when there is no place for it."""
        place = place_of(self.folder, said["round"], Path(said["name"]).name)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("ab") as file:
                file.write(said["content"])
        except OSError as problem:
            raise RunFailed("host", f"{place}: {problem.strerror}") from problem

    def forget(self) -> None:
        """Nobody needs it any more."""
        shutil.rmtree(self.folder, ignore_errors=True)
