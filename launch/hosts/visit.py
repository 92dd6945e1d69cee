"""Asks the machines of a hosts.toml what `pflsim hosts check` and `calibrate` want to know, in the way of a run."""

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, Self

import zmq

from launch.addresses import bind, found_at
from launch.hosts.hostfile import HostFile
from launch.hosts.links import Link, measured_link
from launch.hosts.starting import SshHosts
from launch.interrupts import uninterrupted
from launch.reception import Reception, RemoteHost
from launch.shares import Capacity
from launch.token import Token
from nodes.curve import Keys
from nodes.gate import Gate
from pflsim.errors import RunFailed

JOIN_S = 60.0
"""For so long a machine may need to begin."""
ANSWER_S = 30.0
POLL_MS = 100


@dataclass
class Visited:
    """What one machine has told."""

    name: str
    why_not: str = ""
    """Why it could not be asked, if it could not."""
    python: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    offers: Capacity | None = None
    link: Link | None = None
    plan: Mapping[str, Any] | None = None
    """What it has built, if it was asked to build something."""
    flops_per_second: float | None = None


class _Guests(Reception):
    """Whoever has the key of this visit is heard: what differs is for the visit to say."""

    def _why_not(self, said: Mapping[str, Any]) -> str:
        return "" if said["run_id"] == self._run_id else super()._why_not(said)


class Visit:
    """All machines of a file, started, connected, and asked."""

    def __init__(self, file: HostFile) -> None:
        self._file = file
        self.found = {one.name: Visited(one.name) for one in file.hosts}
        self._guests: dict[str, RemoteHost] = {}
        self._said: dict[str, list[dict[str, Any]]] = {name: [] for name in self.found}
        self._ssh = SshHosts(file, ("hosts", "answer"))
        self._at_the_end = ExitStack()

    def __enter__(self) -> Self:
        last = self._at_the_end.callback
        try:
            with uninterrupted():
                last(self._ssh.end, _nothing)
                context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
                last(context.destroy, linger=0)
                gate = Gate(context, _nothing)
                run_id, keys = secrets.token_bytes(8), (Keys.new(), Keys.new())
                self._reception = _Guests(context, gate, run_id, len(self.found), keys)
                self._reception.strangers = SimpleQueue()
                last(gate.close)
                bind(self._reception.socket, self._file.listen, "listen")
                last(self._reception.end, "done")
                gate.open()
                where = found_at(self._reception.socket.getsockopt_string(zmq.LAST_ENDPOINT))
                self._ssh.start(Token(where, run_id, keys[0].public, keys[1].secret))
        except BaseException:
            self._at_the_end.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        with uninterrupted():
            self._at_the_end.close()

    @property
    def there(self) -> list[Visited]:
        """Those that can still be asked."""
        return [one for one in self.found.values() if not one.why_not]

    def await_all(self) -> None:
        """Wait until each machine has joined, or it is known why it will not."""
        self._wait(lambda one: one.name in self._guests, JOIN_S, f"has not joined within {JOIN_S:g} s")

    def measure_links(self) -> None:
        """One after another, as they share this machine's own link."""
        for one in self.there:
            try:
                one.link = measured_link(partial(self._echo, one.name))
            except RunFailed as problem:
                one.why_not = problem.reason

    def build(self, order: Mapping[str, Any], within_s: float) -> None:
        """Have all of them build what a run's hosts would build; what they have is in their `plan`."""
        for one in self.there:
            self._guests[one.name].say("welcome", name=one.name, order=order, processes=0)
        self._wait(self._take_plan, within_s, f"has not loaded the data within {within_s:g} s")

    def time_steps(self, within_s: float) -> None:
        """Have all of them, at once, time training steps of what they have built."""
        for one in self.there:
            self._guests[one.name].say("time")
        self._wait(self._take_speed, within_s, f"has not timed its steps within {within_s:g} s")

    def _take_plan(self, one: Visited) -> bool:
        if (said := self._next(one.name, "built")) is not None:
            one.plan = said["plan"]
        return one.plan is not None

    def _take_speed(self, one: Visited) -> bool:
        if (said := self._next(one.name, "timed")) is not None:
            one.flops_per_second = said["flops_per_second"]
        return one.flops_per_second is not None

    def _echo(self, name: str, data: bytes, wanted: int) -> tuple[float, int]:
        began_s = time.monotonic()
        self._guests[name].say("echo", data=data, wanted=wanted)
        while (said := self._next(name, "echoed")) is None:
            if self.found[name].why_not:
                raise RunFailed(name, self.found[name].why_not)
            if time.monotonic() - began_s > ANSWER_S:
                raise RunFailed(name, f"has not answered within {ANSWER_S:g} s")
            self.listen()
        return said["_heard_s"] - began_s, said["unix_ns"]

    def _wait(self, is_done: Callable[[Visited], bool], within_s: float, why_not: str) -> None:
        deadline_s = time.monotonic() + within_s
        while rest := [one for one in self.there if not is_done(one) and not one.why_not]:
            if time.monotonic() > deadline_s:
                for one in rest:
                    one.why_not = why_not
            self.listen()

    def _next(self, name: str, kind: str) -> dict[str, Any] | None:
        """What a machine has said of this kind, if it has."""
        found = next((said for said in self._said[name] if said["what"] == kind), None)
        if found is not None:
            self._said[name].remove(found)
        return found

    def listen(self) -> None:
        """Take what machines say; note who has gone."""
        self._reception.socket.poll(POLL_MS)
        heard_s = time.monotonic()
        for guest, said in self._reception.news():
            one = self.found.get(guest.name)
            if one is None:
                continue
            if said["what"] == "hello":
                self._guests[one.name] = guest
                one.python, one.versions, one.offers = str(said.get("python", "?")), said["versions"], guest.offers
            elif said["what"] == "refused":
                one.why_not = one.why_not or f"{said['key']} = {said['value']}: {said['expected']}"
            elif said["what"] in ("failed", "lost", "leaving"):
                one.why_not = one.why_not or str(said["reason"])
            else:
                self._said[one.name].append(said | {"_heard_s": heard_s})
        self._ssh.tend(self.found, _nothing)  # for what they say; whether they may end is judged here
        for one in self.there:
            if one.name not in self._guests:
                one.why_not = self._ssh.why_not(one.name)


def _nothing(line: str) -> None:
    """What they say while they are asked is of no interest."""
