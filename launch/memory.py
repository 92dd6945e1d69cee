"""How much memory and processor time the processes of a run use, as the kernel says."""

import time
from collections.abc import Sequence
from pathlib import Path

import psutil

PAUSE_PER_COST = 100


class Memory:
    """Samples the proportional set size of all processes together, seldom enough to cost under 1 % of a core."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._next_s = time.monotonic() + 1

    def sample_if_cheap(self, pids: Sequence[int]) -> None:
        """Sample if the last time is long enough ago for what it cost."""
        if time.monotonic() >= self._next_s:
            self.sample(pids)

    def sample(self, pids: Sequence[int]) -> None:
        """Add up the proportional set size of `pids` and of this process."""
        began_s = time.monotonic()
        total_bytes = sum(map(pss_bytes, pids)) + pss_bytes(psutil.Process().pid)
        self.peak_bytes = max(self.peak_bytes, total_bytes)
        self._next_s = time.monotonic() + 0.2 + PAUSE_PER_COST * (time.monotonic() - began_s)


def pss_bytes(pid: int) -> int:
    """The proportional set size of a process: its pages, shared ones in proportion; 0 if it has gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return 0
    except ProcessLookupError:
        return 0
    except FileNotFoundError:
        return _resident_bytes(pid)


def _resident_bytes(pid: int) -> int:
    """Where the kernel does not tell the proportional set size: all resident pages, an upper bound."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
