"""`pflsim hosts answer`: what `pflsim hosts check` and `calibrate` start on each machine, to ask it things.

It joins as a host does, over the connections that a run would use, answers, and starts no clients.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from launch.joining import Joined
from launch.token import Token

MOST_BYTES = 1 << 25
"""Of one echo."""


class Answering(Joined):
    """A machine that is asked."""

    def _obey(self, said: dict[str, Any]) -> None:
        if said["what"] == "echo":
            self._say("echoed", data=bytes(min(said["wanted"], MOST_BYTES)), unix_ns=time.time_ns())
        elif said["what"] == "time" and self._host is not None:
            self._host.say("time")
        else:
            super()._obey(said)


def answer(name: str) -> None:
    """What the command does; the token is the first line of its standard input, with whose end it ends."""
    token = Token.read(sys.stdin.readline().strip())
    with tempfile.TemporaryDirectory(prefix="pflsim-answer-") as logs:
        Answering(token, None, name, Path(logs) / "logs", is_tied=True).run()
