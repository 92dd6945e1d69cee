"""Who may tell which facts: over a network, a process speaks of its own actors only, and the hub of the whole run."""

from collections.abc import Mapping
from typing import Any

from nodes.kept_files import PIECE
from nodes.standstill import CHECKPOINT, UNDER_WAY
from pflsim.messages.wire import COORDINATOR
from pflsim.spec import client_names

OF_THE_HUB = ("finished", "lost", "began", "rejected", "skipped", "joined")
"""Events by which the launcher goes."""
COLUMN = {"sent": 1, "uncoded": 1, "bursts": 1, "spans": 1, "events": 1, "model": 1, "received": 2, "measures": 2}
"""Where a fact of these tables says whose it is; one of any other table is the hub's."""
COLUMN_AMONG_PEERS = COLUMN | {"steps": 2, "evaluations": 3}
KEPT = "state", "crossed"
"""What a checkpoint has of an actor."""
MOST_ROUNDS = 1 << 31
FREE = "dropped"
"""What came to somebody, or was lost on the way to somebody, from whomever."""


class Ownership:
    """Which actors are whose."""

    def __init__(self, processes: Mapping[str, tuple[str, ...]], hub: str, passes: Mapping[str, bytes]) -> None:
        """`processes` are those of clients or peers, with their actors; `passes` what each and the hub shows."""
        self._shown_by = {own_pass: process for process, own_pass in passes.items()}
        self._hub = hub
        self._column = COLUMN_AMONG_PEERS if hub == COORDINATOR else COLUMN
        number_of = {name: number for number, name in enumerate(client_names(sum(map(len, processes.values()))))}
        self._own: dict[str, frozenset[str | int]] = {
            process: frozenset([process, *actors, *(number_of[actor] for actor in actors)])
            for process, actors in processes.items()
        }

    def process_of(self, shown: Any) -> str | None:
        """Who shows this; None if nobody of the run does."""
        return self._shown_by.get(shown) if isinstance(shown, bytes) else None

    def flaw_of(self, process: str, fact: tuple[Any, ...]) -> str:
        """Why it is not for `process` to tell this; empty if it is."""
        table = fact[0]
        if process == self._hub or table == FREE:
            return ""
        if table in (PIECE, CHECKPOINT, UNDER_WAY):
            return self._flaw_of_kept(process, fact)
        column = self._column.get(table, len(fact))
        whose = fact[column] if column < len(fact) else None
        is_own = isinstance(whose, str | int) and whose in self._own.get(process, ())
        if is_own and not (table == "events" and len(fact) > 2 and fact[2] in OF_THE_HUB):
            return ""
        return f"{process} tells {table} of {whose!r:.40}, which is not for it to say"

    def _flaw_of_kept(self, process: str, fact: tuple[Any, ...]) -> str:
        """Of a checkpoint, everybody hands in the files of its own actors, and names them with their digests."""
        names = _files_in(fact)
        if names is None:
            return f"{process} tells what is no part of a checkpoint"
        own = {f"{actor}.{kind}" for actor in self._own.get(process, ()) if isinstance(actor, str) for kind in KEPT}
        others = [name for name in names if name not in own]
        return f"{process} hands in {others[0]!r:.40}, which is not its own" if others else ""


def _files_in(fact: tuple[Any, ...]) -> list[str] | None:
    """The files of which a fact of a checkpoint tells; None if it is none."""
    table, round, named, *piece = *fact, None, None
    if type(round) is not int or not 0 < round < MOST_ROUNDS:
        return None
    if table == PIECE:
        return [named] if isinstance(named, str) and isinstance(piece[0], bytes) and len(fact) == 4 else None
    if not isinstance(named, dict) or len(fact) != 3:
        return None
    return list(named) if all(isinstance(one, str) for one in [*named, *named.values()]) else None
