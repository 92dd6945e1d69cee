"""Where hosts of other machines come to a run: a socket, its gate and its keys, which outlive a restart of the run."""

import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import zmq

from launch.addresses import bind, found_at, parsed
from launch.control import PAUSE_S
from launch.directory import replaced
from launch.hosts.starting import Starter
from launch.interrupts import uninterrupted
from launch.progress import Progress
from launch.reception import Reception
from launch.token import Token
from nodes.curve import Keys
from nodes.gate import Gate
from pflsim.errors import DescriptionError

Tell = Callable[[str, str, str], None]
"""Records an event of an actor, and says it."""


@dataclass(frozen=True)
class Lan:
    """How a run reaches other machines."""

    listen: str
    """Where hosts find it, such as tcp://0.0.0.0:5555."""
    hosts: int
    """How many are awaited."""
    await_s: float = 600.0
    """For how long."""
    local_clients: int = 0
    is_secure: bool = True
    starter: Starter | None = None
    """What starts the hosts; without it somebody does by hand."""
    token_file: Path | None = None
    """Where the token is put for whoever starts the hosts, instead of being printed."""


def lan_of(
    listen: str | None,
    *,
    insecure: bool,
    starter: Starter | None = None,
    token_file: Path | None = None,
    **given: float | None,
) -> Lan | None:
    """What the command line says of other machines. Raises DescriptionError for what makes no sense without them."""
    said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    said |= {"insecure": True} if insecure else {}
    said |= {"token_file": str(token_file)} if token_file else {}
    where = listen or (starter.listen if starter else None)
    if where is None:
        if said:
            option = min(said)
            needed = "needs --listen" + (", --hosts or --cluster" if option != "token_file" else "")
            raise DescriptionError(f"--{option.replace('_', '-')}", said[option], needed)
        return None
    if token_file and (starter or token_file.exists()):
        expected = "is for hosts that are started by somebody else" if starter else "exists already"
        raise DescriptionError("--token-file", str(token_file), expected)
    hosts, local = int(said.get("await_hosts", 1)), int(said.get("local_clients", 0))
    return Lan(where, hosts, said.get("await_s", 600.0), local, not insecure, starter, token_file)


class Lobby:
    """Open from a run's beginning to its end, also where it goes back to a checkpoint between."""

    reception: Reception

    def __init__(self, lan: Lan) -> None:
        """Raises DescriptionError for a place where it cannot listen, or hosts that cannot be started."""
        self.address, self._port = parsed(lan.listen)
        self.lan = lan
        self.awaited = lan.hosts if lan.starter is None else lan.starter.count(lan.await_s)
        """So many hosts are to come."""
        self.run_id = secrets.token_bytes(8)
        self.strangers: SimpleQueue[str] = SimpleQueue()
        """Who was refused, in words; the gates of runs add to it."""
        self._own, self._joining = (Keys.new() if lan.is_secure else None for _ in range(2))
        self._gate: Gate | None = None
        self._say: Callable[[str], None] = lambda words: None
        self._at_the_end = ExitStack()
        self._has_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with uninterrupted():
            self.end("failed", lambda actor, what, words: None)
            self._at_the_end.close()

    @property
    def is_open(self) -> bool:
        """Whether hosts may come, or are here already."""
        return self._gate is not None

    def open(self, say: Callable[[str], None]) -> None:
        """Let hosts come, if they cannot yet; `say` is told what started ones say. Raises DescriptionError."""
        self._say = say
        if self.is_open:
            return
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._at_the_end.callback(context.destroy, linger=0)
        gate = Gate(context, self.strangers.put)
        keys = (self._own, self._joining) if self._own and self._joining else None
        self.reception = Reception(context, gate, self.run_id, self.awaited, keys)
        self.reception.strangers = self.strangers
        self._at_the_end.callback(lambda: self.__dict__.pop("reception", None))
        self._at_the_end.callback(gate.close)
        bind(self.reception.socket, f"tcp://{self.address}:{self._port}")
        gate.open()
        self._gate = gate

    def invite(self, progress: Progress) -> None:
        """Start the hosts, or say how somebody else can; anew, if all that came are lost."""
        lan = self.lan
        if lan.starter is not None and self._has_begun:
            lan.starter.end(self._say)
            self.awaited = self.reception.most = lan.starter.count(lan.await_s)
        self._has_begun = True
        addresses = found_at(self.reception.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        keys = (self._own.public, self._joining.secret) if self._own and self._joining else (b"", b"")
        token = Token(addresses, self.run_id, *keys)
        if lan.starter is not None:
            self._say(lan.starter.start(token))
            return
        count = f"{self.awaited} machine{'s' if self.awaited > 1 else ''}"
        plain = "" if lan.is_secure else " (without keys: whoever reaches this machine can take part)"
        if lan.token_file is None:
            progress.announce(f"waiting for {count}{plain}; on each: pflsim host --join {token}")
            return
        _write_privately(lan.token_file, f"{token}\n")
        self._at_the_end.callback(lan.token_file.unlink, missing_ok=True)
        progress.say(f"waiting for {count}{plain}; the token is in {lan.token_file}")

    def tend(self) -> None:
        """See to the hosts that were started: what they say, and whether one has ended before it had joined."""
        if self.lan.starter is not None and self._has_begun:
            self.lan.starter.tend([host.name for host in self.reception.hosts if host.is_ready], self._say)

    def pause(self) -> None:
        """The run may go back to a checkpoint: whoever is there waits for the launcher to come back."""
        for host in self.reception.hosts:
            host.say("pause", for_s=PAUSE_S)

    def end(self, status: str, tell: Tell) -> None:
        """Have all hosts end, once; who was refused and is not told yet, is told."""
        if self._gate is None:
            return
        gate, self._gate = self._gate, None
        self.reception.end(status)
        for words in gate.close():
            tell("launcher", "refused", words)
        if self.lan.starter is not None:
            self.lan.starter.end(self._say)


def _write_privately(file: Path, text: str) -> None:
    """A file that nobody else may read, there as a whole or not at all. Raises DescriptionError."""
    try:
        with replaced(file) as unfinished:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as opened:
                opened.write(text)
    except OSError as problem:
        raise DescriptionError("--token-file", str(file), f"cannot be written: {problem.strerror}") from problem
