"""What the system allows a run: libzmq aborts a process that runs out of open files, so this is checked before."""

import resource

from pflsim.errors import DescriptionError

OWN_FILES = 64
"""What a process needs beside its connections: its libraries, logs, the record, and ZeroMQ's own descriptors."""


def require_open_files(processes: int) -> None:
    """Allow one connection per client process, here and in the children; raises DescriptionError if that is denied."""
    needed = processes + OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            reason = f"their processes need {needed} open files and the system allows {hard}"
            mend = "raise it (ulimit -n), or set run.clients_per_process so that clients share processes"
            raise DescriptionError("run.clients", processes, f"{reason}: {mend}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
