"""What a run wants of whatever starts its hosts, and the first that does: ssh, to the machines of a file."""

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from launch.hosts.beginning import why_it_ended
from launch.hosts.hostfile import HostFile, read_hosts
from launch.hosts.remote import Remote
from launch.token import Token
from pflsim.errors import RunFailed, few

FAREWELL_S = 10.0
"""For so long hosts that were told of the end may take for theirs."""
HOST = ("host", "--join", "-", "--tied")
"""The command that every host runs: it reads the token, and ends with whoever has started it."""
Say = Callable[[str], None]


class Starter(Protocol):
    """Starts the hosts of a run on other machines, one run after another."""

    listen: str
    """Where they are to find the launcher."""

    def count(self, await_s: float) -> int:
        """How many it will start; it may take so long to find out. Raises DescriptionError."""

    def start(self, token: Token) -> str:
        """Start them; what it has started, in words. Raises RunFailed."""

    def tend(self, joined: Collection[str], say: Say) -> None:
        """Say what they have said since; `joined` have joined. Raises RunFailed for one that will not."""

    def end(self, say: Say) -> None:
        """The run is over, and the hosts know: end all that was started and is still there."""


class SshHosts:
    """The machines of a hosts.toml."""

    def __init__(self, file: HostFile, command: Collection[str] = HOST) -> None:
        self._file, self._hosts, self._command = file, {one.name: one for one in file.hosts}, command
        self._remotes: dict[str, Remote] = {}
        self._joined: set[str] = set()
        self.listen = file.listen

    @classmethod
    def read(cls, path: Path) -> "SshHosts":
        """Of a file. Raises DescriptionError."""
        return cls(read_hosts(path))

    def count(self, await_s: float) -> int:
        """How many the file names."""
        return len(self._hosts)

    def start(self, token: Token) -> str:
        """Start all of them at once; each is handed the token through its connection."""
        self._joined = set()
        for name, host in self._hosts.items():
            clients = ["--clients", str(host.clients)] if host.clients and self._command == HOST else []
            command = self._file.command(host, *self._command, "--name", name, *clients)
            self._remotes[name] = Remote(name, command, str(token))
        return f"starting {len(self._hosts)} host{'s' * (len(self._hosts) > 1)} by ssh: {few(list(self._hosts))}"

    def tend(self, joined: Collection[str], say: Say) -> None:
        """Say what they have said since. Raises RunFailed for one that ended before it had joined."""
        self._joined |= set(joined)
        self._say_on(say)
        for name in self._remotes:
            if name not in self._joined and (why := self.why_not(name)):
                raise RunFailed(name, why)

    def why_not(self, name: str) -> str:
        """Why a host has ended, as long as it had no reason to; empty while it goes on."""
        remote, host = self._remotes[name], self._hosts[name]
        if remote.code is None:
            return ""
        remote.lines()
        last = remote.last[-1].removeprefix("pflsim: ") if remote.last else ""
        return why_it_ended(remote.code, host.program, host.directory, last)

    def end(self, say: Say) -> None:
        """Close all connections, so that whatever still runs there ends too."""
        deadline_s = time.monotonic() + FAREWELL_S
        for remote in self._remotes.values():
            remote.let_go()
        for remote in self._remotes.values():
            remote.end(deadline_s - time.monotonic())
        self._say_on(say)
        for remote in self._remotes.values():
            remote.close()
        self._remotes = {}

    def _say_on(self, say: Say) -> None:
        for name, remote in self._remotes.items():
            for line in filter(None, remote.lines()):
                say(f"[{name}] {line}")
