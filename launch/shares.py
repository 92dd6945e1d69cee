"""Which host of a run takes which clients: as many as it asked for, else in proportion to its cores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pflsim.errors import RunFailed

SHARE_OF_MEMORY = 0.8
"""Of what is free on a host, its clients may need so much."""


@dataclass(frozen=True)
class Capacity:
    """What a host offers."""

    cores: int
    memory_bytes: int
    """That is free."""
    clients: int | None = None
    """How many clients it is to take, if somebody has said so."""


def shares(hosts: Mapping[str, Capacity], sizes: Sequence[int], client_bytes: float) -> dict[str, int]:
    """How many processes each host takes, in the order of `hosts`; process i has `sizes[i]` clients.

    A host that was told a number of clients takes the processes that have as many. Raises RunFailed when the hosts
    were told more or fewer than there are, or when their memory does not suffice.
    """
    told, total = {name: one.clients for name, one in hosts.items() if one.clients is not None}, sum(sizes)
    if sum(told.values()) > total or (len(told) == len(hosts) and sum(told.values()) != total):
        parts = ", ".join(f"{name} {count}" for name, count in told.items())
        raise RunFailed("launcher", f"the hosts were told to take {sum(told.values())} clients ({parts}) of {total}")
    taken: dict[str, int] = {}
    first = 0
    for name, clients in told.items():
        taken[name] = _processes_with(sizes[first:], clients, name)
        first += taken[name]
    free = {name: one for name, one in hosts.items() if name not in told}
    taken |= _by_cores(free, len(sizes) - first, client_bytes * max(sizes, default=1))
    return {name: taken[name] for name in hosts}


def _processes_with(sizes: Sequence[int], clients: int, name: str) -> int:
    """How many of the next processes have so many clients."""
    count = held = 0
    while held < clients:
        held, count = held + sizes[count], count + 1
    if held != clients:
        expected = f"cannot take {clients} clients, as {sizes[0]} share a process (run.clients_per_process)"
        raise RunFailed(name, expected)
    return count


def _by_cores(hosts: Mapping[str, Capacity], processes: int, process_bytes: float) -> dict[str, int]:
    """Hand out one process after another to whoever has the fewest for its cores, and still has memory."""
    most = {name: int(SHARE_OF_MEMORY * one.memory_bytes / process_bytes) for name, one in hosts.items()}
    taken = dict.fromkeys(hosts, 0)
    for done in range(processes):
        able = [name for name in hosts if taken[name] < most[name]]
        if not able:
            needed = f"{processes} processes of {process_bytes / 1e6:.0f} MB each"
            raise RunFailed("launcher", f"the memory of the hosts does not suffice: of {needed}, {done} have a place")
        taken[min(able, key=lambda name: (taken[name] + 1) / hosts[name].cores)] += 1
    return taken
