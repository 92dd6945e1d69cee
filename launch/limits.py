"""What the system allows a run: libzmq aborts a process that runs out of open files, so this is checked before."""

import resource

from pflsim.errors import DescriptionError

OWN_FILES = 64
"""What a process needs beside its connections: its libraries, logs, the record, and ZeroMQ's own descriptors."""


def require_open_files(clients: int, processes: int) -> None:
    """Allow a connection to each of the clients' processes, here and in the children; DescriptionError if denied."""
    needed = processes + OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            reason = f"their {processes} processes need {needed} open files and the system allows {hard}"
            pack = " or let more clients share a process (run.clients_per_process)" if processes > 1 else ""
            raise DescriptionError("run.clients", clients, f"{reason}: raise it (ulimit -n){pack}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
