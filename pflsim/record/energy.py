"""How much energy each actor spent: the watts of its device times how long it computed, sent, and did neither."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pflsim.record.history import History
from pflsim.record.shares import shares

SERVER = "server"
_PER_S = 1e9


class Energy(NamedTuple):
    """Joules of one actor; what it was away for costs nothing."""

    actor: str
    computing_j: float
    sending_j: float
    idle_j: float

    @property
    def total_j(self) -> float:
        """All of it."""
        return self.computing_j + self.sending_j + self.idle_j


def energies(
    history: History,
    watts: Mapping[str, Sequence[float]],
    absences: Mapping[str, Sequence[tuple[int, int]]] | None = None,
) -> list[Energy]:
    """Of each actor for which `watts` has what it draws: computing, sending, and idle; away it draws nothing."""
    found = []
    for share in shares(history, absences):
        if share.actor in watts:
            computing_w, sending_w, idle_w = watts[share.actor]
            lasted_ns = (share.computing_ns, share.sending_ns, share.waiting_ns)
            joules = (w * ns / _PER_S for w, ns in zip((computing_w, sending_w, idle_w), lasted_ns, strict=True))
            found.append(Energy(share.actor, *joules))
    return found


def summed(spent: Sequence[Energy]) -> dict[str, Any]:
    """What `summary.json` says of it: in total, by the clients, by the server (None: not told), and on what."""
    clients = [one for one in spent if one.actor != SERVER]
    server_j = next((one.total_j for one in spent if one.actor == SERVER), None)
    most = max(clients, key=lambda one: one.total_j, default=None)  # of equal ones the first
    return {
        "total_j": sum(one.total_j for one in spent),
        "clients_j": sum(one.total_j for one in clients),
        "server_j": server_j,
        "clients_computing_j": sum(one.computing_j for one in clients),
        "clients_sending_j": sum(one.sending_j for one in clients),
        "clients_idle_j": sum(one.idle_j for one in clients),
        "most_at": most.actor if most else None,
        "most_j": most.total_j if most else None,
    }
