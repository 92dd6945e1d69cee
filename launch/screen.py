"""What the command line prints to, whatever became of it: a closed pipe, a terminal that is gone, a poor encoding."""

import os
import sys
import textwrap
from contextlib import suppress

WIDTH = 80


def prepare() -> None:
    """Have three standard streams that take any text, so that no file of a run can get the number of a missing one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def fitted(line: str, hanging: int = 0, width: int = WIDTH) -> str:
    """A line of text as several that fit; all but the first begin with so many blanks."""
    indent = len(line) - len(line.lstrip())
    rest = " " * hanging
    return textwrap.fill(
        line.lstrip(),
        width,
        initial_indent=" " * indent,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def is_refused() -> bool:
    """Whether standard output does not take what is printed, as when its disk is full."""
    try:
        print(flush=True)  # what could not be written before is forgotten, so something has to be
    except OSError:
        return True
    return False


def say(line: str) -> None:
    """Print a line to standard error, if there is anybody to read it."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def abandon(descriptor: int) -> None:
    """Nobody reads this stream any more: what is still written to it goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def flush() -> None:
    """Write out what is still kept; a stream that nobody reads is abandoned, so that Python's own end is silent."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            abandon(descriptor)
