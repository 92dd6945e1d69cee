"""The sequential driver: all actors in one process, one event at a time, in simulated order.

It runs the very programs that processes run, without sockets, processes or promises, and therefore says what a run
has to give (`digest`, `trace_digest`); it is also the way to step through a run with a debugger.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from greenlet import greenlet

from nodes.programs import port_of, program_of
from pflsim.errors import RunFailed
from pflsim.messages.port import Port, frame_sizes
from pflsim.messages.wire import Frame, decode
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock


class Sequential:
    """A carrier that hands the turn to the actor whose next event is the earliest, ties by name."""

    def __init__(self, run_id: bytes) -> None:
        self._run_id = run_id
        self._ports: dict[str, Port] = {}
        self._actors: dict[str, greenlet] = {}
        self._until: dict[str, int | None] = {}
        """Who waits: for mail (None), or until a simulated time."""
        self._hub = greenlet.getcurrent()

    def add(self, port: Port, program: Callable[[Port], None]) -> None:
        """An actor: `program(port)` runs when `run` gives it the turn."""
        self._ports[port.name] = port
        self._actors[port.name] = greenlet(lambda: program(port), parent=self._hub)

    def run(self) -> None:
        """Run the events of all actors in simulated order until all have finished."""
        for actor in list(self._actors.values()):
            actor.switch()
        while self._until:
            events = [(due_ns, name) for name in self._until if (due_ns := self._due_ns(name)) is not None]
            if not events:
                waits = ", ".join(f"{name}: {self._ports[name].waits_for()}" for name in sorted(self._until))
                raise RunFailed(min(self._until), f"everybody waits for somebody else: {waits}")
            _, name = min(events)
            del self._until[name]
            self._actors[name].switch()

    def post(self, to: str, frames: Sequence[Frame]) -> None:
        """Deliver a copy of `frames` to the actor `to`, as the wire would."""
        copies = [bytes(frame) for frame in frames]
        message, stamp = decode(copies, self._run_id)
        self._ports[to].deliver(message, stamp, frame_sizes(copies))

    def wait_for_mail(self, port: Port) -> None:
        """Let others work until the earliest message of `port` is the earliest event of all."""
        self._until[port.name] = None
        self._hub.switch()

    def wait_until(self, port: Port, until_ns: int) -> None:
        """Let others work until `until_ns` is the earliest event of all."""
        self._until[port.name] = until_ns
        self._hub.switch()

    @property
    def place(self) -> tuple[str, str]:
        """All live here."""
        return "", ""

    def meet(self, actor: str, process: str, endpoint: str) -> None:
        """They have met."""

    def part(self, actor: str) -> None:
        """Nobody gets lost here."""

    def _due_ns(self, name: str) -> int | None:
        """When the next event of an actor is; one whose work is cancelled, or may be, goes on before all others.

        For what it is given instead may be done before this work would have been. It has gone ahead of the others until
        it hears of that, so its own time says nothing.
        """
        port, until_ns = self._ports[name], self._until[name]
        if until_ns is None:
            return port.next_event_ns()
        return 0 if port.is_asked() or port.works_in_vain() else until_ns


class FactList:
    """A recorder that keeps the facts in memory."""

    def __init__(self) -> None:
        self.facts: list[tuple[Any, ...]] = []

    def tell(self, *fact: Any) -> None:
        """Keep one fact."""
        self.facts.append(fact)

    def flush(self) -> None:
        """Nothing to do: they can be seen already."""

    def finished(self) -> dict[str, Any]:
        """What the server told at the end: `digest`, `trace_digest` and more."""
        told = next(fact for fact in reversed(self.facts) if fact[0] == "events" and fact[2] == "finished")
        finished: dict[str, Any] = json.loads(told[3])
        return finished


def run_sequentially(study: Study) -> FactList:
    """Run a study in this process, in simulated order; the facts that it would have recorded."""
    told, carrier = FactList(), Sequential(study.run_id)
    for name in (study.hub, *study.names):
        port = port_of(study, name, VirtualClock(), carrier, told)
        port.promises = False  # nobody needs to know before what comes after
        carrier.add(port, program_of(study, name))
    carrier.run()
    return told
