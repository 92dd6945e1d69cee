"""A command on another machine, at the other end of a connection that ssh keeps."""

import os
import subprocess
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from pflsim.errors import RunFailed

CHUNK_BYTES = 1 << 16
LAST_LINES = 8


class Remote:
    """The ssh that runs a command; it leads a session of its own, so that neither a terminal nor Ctrl-C is its."""

    def __init__(self, name: str, command: Sequence[str], hand: str) -> None:
        """`hand` is the first line of the command's standard input, which stays open. Raises RunFailed."""
        self.name = name
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        """The last lines that it has said."""
        self._rest = b""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as problem:
            raise RunFailed(name, f"cannot be reached: {command[0]}: {problem.strerror}") from problem
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        with suppress(BrokenPipeError):
            self._input.write(f"{hand}\n".encode())
            self._input.flush()

    @property
    def code(self) -> int | None:
        """With what it has ended, if it has."""
        return self._process.poll()

    def lines(self) -> list[str]:
        """The lines that it has said since they were last asked for; at its end also one that is not whole."""
        while True:
            try:
                piece = os.read(self._output.fileno(), CHUNK_BYTES)
            except BlockingIOError:
                break
            self._rest += piece
            if not piece:
                self._rest += b"\n" * bool(self._rest)
                break
        *whole, self._rest = self._rest.split(b"\n")
        said = [_shown(line) for line in whole]
        self.last.extend(line for line in said if line)
        return said

    def let_go(self) -> None:
        """Close its standard input: what runs there ends when it sees that."""
        with suppress(OSError):
            self._input.close()

    def end(self, within_s: float) -> None:
        """Wait for its end, and make it one when that takes too long."""
        self.let_go()
        try:
            self._process.wait(max(0.0, within_s))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Close what is left of the connection."""
        self._output.close()


def _shown(line: bytes) -> str:
    """A line without what a terminal might obey."""
    return "".join(letter if letter.isprintable() else " " for letter in line.decode(errors="replace")).rstrip()
