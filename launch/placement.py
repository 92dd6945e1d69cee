"""Which process runs which clients, and how processes are started."""

from pflsim.spec import Description, client_names, fork_is_safe

FORKED_BYTES, SPAWNED_BYTES = 15_000_000, 150_000_000
"""Memory that a process adds, measured: forked from a warm host, and from a fresh interpreter."""


def start_method(description: Description) -> str:
    """How processes are started: forked where that is safe, else from fresh interpreters."""
    start = description.run.start
    return ("fork" if fork_is_safe() else "spawn") if start == "auto" else start


def assignments(description: Description) -> dict[str, tuple[str, ...]]:
    """Which clients share a process, by the process's name."""
    names, share = client_names(description.run.clients), description.run.clients_per_process
    groups = [tuple(names[first : first + share]) for first in range(0, len(names), share)]
    return {group[0] if len(group) == 1 else f"{group[0]}-{group[-1]}": group for group in groups}
