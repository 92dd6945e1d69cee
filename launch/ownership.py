"""Who may tell which facts: over a network, a process speaks of its own actors only, and the hub of the whole run."""

from collections.abc import Mapping
from typing import Any

from pflsim.messages.wire import COORDINATOR
from pflsim.spec import client_names

OF_THE_HUB = ("finished", "lost", "began", "rejected", "skipped", "joined")
"""Events by which the launcher goes."""
COLUMN = {"sent": 1, "uncoded": 1, "bursts": 1, "spans": 1, "events": 1, "model": 1, "received": 2, "measures": 2}
"""Where a fact of these tables says whose it is; one of any other table is the hub's."""
COLUMN_AMONG_PEERS = COLUMN | {"steps": 2, "evaluations": 3}
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
        column = self._column.get(table, len(fact))
        whose = fact[column] if column < len(fact) else None
        is_own = isinstance(whose, str | int) and whose in self._own.get(process, ())
        if is_own and not (table == "events" and len(fact) > 2 and fact[2] in OF_THE_HUB):
            return ""
        return f"{process} tells {table} of {whose!r:.40}, which is not for it to say"
