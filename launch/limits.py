"""What the system allows a run: libzmq aborts a process that runs out of files or threads, so it is checked before."""

import os
import resource

from pflsim.errors import DescriptionError

OWN_FILES = 64
"""What a process needs beside its connections: its libraries, logs, the record, and ZeroMQ's own descriptors."""
THREADS_EACH = 3
"""Of every process that talks over ZeroMQ: its own, and two of the library; the system counts threads, too."""
ALWAYS_THERE = 2
"""The server and the launcher, beside the clients' processes and the host."""


def require_what_it_takes(clients: int, processes: int) -> None:
    """Allow as many files and threads as `clients` in so many `processes` need; DescriptionError if that is denied.

    A connection to each of these processes needs a file, here and in the children, which inherit the limits.
    """
    _require(resource.RLIMIT_NOFILE, processes + OWN_FILES, "open files", "-n", clients, processes)
    if os.getuid() != 0:  # whom that limit does not hold for
        threads = THREADS_EACH * (processes + ALWAYS_THERE) + 1
        _require(resource.RLIMIT_NPROC, threads, "processes and threads", "-u", clients, processes)


def _require(limit: int, needed: int, what: str, option: str, clients: int, processes: int) -> None:
    soft, hard = resource.getrlimit(limit)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        reason = f"their {processes} processes need {needed} {what} and the system allows {hard}"
        pack = " or let more clients share a process (run.clients_per_process)" if processes > 1 else ""
        raise DescriptionError("run.clients", clients, f"{reason}: raise it (ulimit {option}){pack}")
    resource.setrlimit(limit, (needed, hard))
