"""Readies the memory of a process that is about to fork many times, so that a fork costs little and gives much."""

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_MADV_DONTNEED = 4
_MADV_COLLAPSE = 25  # Linux 6.1; older kernels refuse it, which does no harm
_HUGE_BYTES = 1 << 21


def use_huge_pages() -> None:
    """A fork copies one entry per page, used or not: 8 ms of 4 KiB pages once torch is loaded, 2 ms of 2 MiB pages."""
    if not sys.platform.startswith("linux"):
        return
    for mapping in psutil.Process().memory_maps(grouped=False):
        begin, end = _addresses(mapping)
        begin, end = -(-begin // _HUGE_BYTES) * _HUGE_BYTES, end // _HUGE_BYTES * _HUGE_BYTES
        if mapping.perms == "rw-p" and mapping.path in ("[anon]", "[heap]") and begin < end:
            _advise(begin, end, _MADV_COLLAPSE)


def hand_on_libraries(warm_up: Callable[[], None]) -> None:
    """Let a child find the pages of shared libraries that `warm_up` uses, instead of faulting them in one by one.

    Linux copies the page table of a file's mapping at a fork only if the mapping has a page of its own. So each that
    `warm_up` uses gets one: its first byte is written over with itself. All page tables are emptied before, or a
    child would be given, and would have to give back, what only the imports used.
    """
    if not sys.platform.startswith("linux"):
        return
    libraries = [mapping for mapping in psutil.Process().memory_maps(grouped=False) if _is_as_in_its_file(mapping)]
    for library in libraries:
        _advise(*_addresses(library), _MADV_DONTNEED)
    warm_up()
    used = {mapping.addr for mapping in psutil.Process().memory_maps(grouped=False) if mapping.rss}
    with suppress(OSError), Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        for library in libraries:
            if library.addr in used:
                begin, _ = _addresses(library)
                memory.seek(begin)
                first = memory.read(1)
                memory.seek(begin)
                memory.write(first)


def _is_as_in_its_file(mapping: Any) -> bool:
    """Whether it is code or constants of a library to which no relocation was applied, so that it can be read anew."""
    return mapping.path.startswith("/") and mapping.perms in ("r--p", "r-xp") and not mapping.anonymous


def _addresses(mapping: Any) -> tuple[int, int]:
    begin, end = mapping.addr.split("-")
    return int(begin, 16), int(end, 16)


def _advise(begin: int, end: int, advice: int) -> None:
    ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)
