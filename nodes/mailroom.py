"""Carries the messages of one process over its one ZeroMQ socket, and hands the turn to its actors.

Every actor is a greenlet: it runs alone until it waits in its port, so actors that share a process need no locks and
their results do not depend on who runs first. The server's mailroom is a bound ROUTER, that of clients a DEALER; the
mailrooms of peers are bound ROUTERs that are also connected among each other, once for each pair of processes.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import zmq
from greenlet import GreenletExit, greenlet

from nodes.facts import FactSender
from nodes.losses import Losses
from pflsim.errors import BadMessage, RunFailed, few
from pflsim.messages.coordinator_port import CoordinatorPort
from pflsim.messages.peer_port import PeerPort
from pflsim.messages.port import Port, frame_sizes
from pflsim.messages.wire import ALIVE, HELLO, JOIN, LICENCE, Frame, Message, decode
from pflsim.timing.clock import host_seconds

SLICE_S = 1.0
"""So often it is seen who waits for whom, and peers tell that they are there."""
COPY_BELOW_BYTES = 1 << 16
MOST_PATIENCE_MS = 640
MOST_AT_ONCE = 64
"""So many more messages are taken in before it is seen who can go on."""
MOST_TOLD = 1000
"""Of what is dropped of one sender so many messages are told one by one, then those at which their number doubles."""


class Mailroom:
    """The carrier of a process that talks to others over a socket."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        run_id: bytes,
        members: Sequence[str],
        facts: FactSender,
        patience_s: float,
        process: str = "",
        patience_ms: int = 5,
    ) -> None:
        self.place = process, socket.getsockopt_string(zmq.LAST_ENDPOINT)
        """The name of this process, and where it can be found; told before it connects to anybody."""
        self._process = process
        self._socket, self._run_id, self._facts, self._patience_s = socket, run_id, facts, patience_s
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._routed = socket.type == zmq.ROUTER
        self._routes: dict[str, bytes] = {}
        """By actor: from where it speaks."""
        self._met: dict[str, str] = {}
        """The processes of peers to which there is a connection, and where they are found."""
        self._members = frozenset(members)
        self._ports: dict[str, Port] = {}
        self._actors: dict[str, greenlet] = {}
        self._until: dict[str, int | None] = {}
        """Who waits: for mail (None), or until a simulated time."""
        self._check: list[str] = []
        """Whose wait may be over."""
        self._is_over = False
        self._hub = greenlet.getcurrent()
        self._parent = os.getppid()
        self._last_news_s = host_seconds()
        self._said: str | None = None
        self._is_among_peers = False
        self.losses: Losses | None = None
        """Who has left the run, if it goes on without them."""
        self._dropped: Counter[bytes] = Counter()
        """By from where it came: how many messages were dropped."""
        self._peers: list[PeerPort] = []
        self._alive_s: dict[str, float] = {}
        """By peer: when it has last told its coordinator that it is there."""
        self._watched_s = 0.0
        self._reporting: list[PeerPort] = []
        """Who tells an arbiter when nothing comes any more."""
        self._patience_ms = patience_ms
        """For how long nothing must have come before they do: mostly what they wait for comes by itself."""
        self._own_patience_ms = self._patience_ms
        """The same where nobody else waits for their word: longer each time, until a licence shows the need of it."""
        self._timed = False
        """Whether time passes by itself here: under the wall clock an actor may wait for it, not for a message."""

    def add(self, port: Port, program: Callable[[Port], None]) -> None:
        """An actor of this process: `program(port)` runs when `run` gives it the turn."""
        self._ports[port.name] = port
        self._timed = port.clock.seconds_until(0) is not None
        self._is_among_peers |= isinstance(port, PeerPort | CoordinatorPort)
        if isinstance(port, PeerPort):
            self._peers.append(port)
            if not self._timed:
                self._reporting.append(port)
        self._actors[port.name] = greenlet(lambda: self._live(port, program), parent=self._hub)

    def meet(self, actor: str, process: str, endpoint: str) -> None:
        """Be ready to talk to `actor`, which lives in `process`; of two processes the lesser connects to the other."""
        self._routes[actor] = process.encode()
        if process in self._met or self._process > process:
            return
        self._met[process] = endpoint
        self._socket.setsockopt(zmq.CONNECT_ROUTING_ID, self._way_to(actor) or b"")
        self._socket.connect(endpoint)

    def part(self, actor: str) -> None:
        """`actor` has left the run, with its process: what was not sent to it yet must keep nobody from ending."""
        endpoint = self._met.pop(self._routes.get(actor, b"").decode(), None)
        if endpoint is not None:
            self._socket.disconnect(endpoint)

    def know(self, routes: Mapping[str, bytes]) -> None:
        """These actors speak from there and from nowhere else, whatever others claim."""
        self._routes |= routes

    def run(self) -> None:
        """Give the actors their turns until all have finished."""
        try:
            for actor in list(self._actors.values()):
                actor.switch()
            while self._until:
                self._give_turns()
                if self._until:
                    self._receive()
        finally:
            self._is_over = True
            for count in self._dropped.values():
                if count > MOST_TOLD:
                    told = f"{count} messages of one sender were dropped in all"
                    self._facts.tell("dropped", "/".join(self._ports), "flood", told, 0, None, None, None)
            for port in self._ports.values():
                port.tell_untaken()

    # what ports call

    def post(self, to: str, frames: Sequence[Frame]) -> None:
        """Send `frames` to the actor `to`; never blocks."""
        if self.losses is not None and to in self.losses.lost:
            return
        if self._routed:
            route = self._way_to(to)
            if route is None:
                raise RunFailed(to, "is sent a message, but has not joined")
            try:
                self._send_frame(route, last=False)
            except zmq.ZMQError as problem:
                if self._is_among_peers and problem.errno == zmq.EHOSTUNREACH:
                    return  # it has died; who died is for the launcher to say, not for whom it reaches next
                if self.losses is not None and problem.errno == zmq.EHOSTUNREACH:
                    self.losses.cannot_reach(to)
                    return
                raise RunFailed(to, f"cannot be reached ({problem})") from problem
        for frame in frames[:-1]:
            self._send_frame(frame, last=False)
        self._send_frame(frames[-1], last=True)

    def wait_for_mail(self, port: Port) -> None:
        """Let others work until the earliest message of `port` may be handed out."""
        while not port.may_go_on():
            self._until[port.name] = None
            self._hub.switch()

    def wait_until(self, port: Port, until_ns: int) -> None:
        """Under the virtual clock work is done when it is done; under the wall clock, let others work until then."""
        while port.clock.seconds_until(until_ns) and not port.is_asked():
            self._until[port.name] = until_ns
            self._hub.switch()

    def _way_to(self, actor: str) -> bytes | None:
        """By which route `actor` is reached; one of this very process through a connection of it to itself."""
        return f"{self._process}/".encode() if actor in self._ports else self._routes.get(actor)

    # the hub

    def _live(self, port: Port, program: Callable[[Port], None]) -> None:
        try:
            program(port)
        except (RunFailed, KeyboardInterrupt):
            raise
        except (GreenletExit, SystemExit) as problem:
            if self._is_over:  # greenlet throws the first one into whoever still waits when the process ends
                raise
            raise RuntimeError(f"{problem!r} was raised in the program of {port.name}") from problem
        except Exception as problem:
            problem.add_note(f"in the program of {port.name}")
            raise

    def _give_turns(self) -> None:
        check, self._check = self._check, []
        for name in dict.fromkeys(check):
            if name not in self._until:
                continue
            port, until_ns = self._ports[name], self._until[name]
            over = port.may_go_on() if until_ns is None else port.is_asked() or not port.clock.seconds_until(until_ns)
            if over:
                del self._until[name]
                self._actors[name].switch()
                self._last_news_s = host_seconds()  # what an actor takes for its own work is not a wait

    def _receive(self) -> None:
        """Take in what has come, or let the time pass for which the nearest actor waits.

        Where time passes by itself, whoever waits for it is asked after each message; to peers several are one errand.
        """
        wait_s = self._seconds_to_nearest() if self._timed else SLICE_S
        if not (self._comes_before_reporting() or self._comes_within(math.ceil(wait_s * 1000))):
            self._check.extend(self._until)
            self._watch_if_due()
            return
        self._take_off()
        if self._timed:
            self._check.extend(self._until)
        elif self._is_among_peers:
            for _ in range(MOST_AT_ONCE):
                if not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                    break
                self._take_off()
        self._watch_if_due()

    def _take_off(self) -> None:
        """Take a message that has come off the socket."""
        frames = self._socket.recv_multipart(copy=False)
        self._dispatch([frame.buffer for frame in frames])

    def _comes_within(self, wait_ms: int) -> bool:
        """Whether a message comes within that time; who is lost meanwhile has left the run."""
        if self.losses is None:
            return bool(self._poller.poll(wait_ms))
        has_come, lost = self.losses.await_mail(wait_ms)
        for actor, reason in lost:
            self._lose(self.losses, actor, reason)
        return has_come

    def _lose(self, losses: Losses, actor: str, reason: str) -> None:
        if actor in losses.lost:
            return
        losses.lost.add(actor)
        for port in self._ports.values():
            port.lose(actor)
            self._facts.tell("events", actor, "lost", reason, port.now_ns, host_seconds())
        self._facts.flush()
        self._check.extend(self._until)

    def _comes_before_reporting(self) -> bool:
        """Whether a message comes in time; else those who wait tell the arbiter so."""
        waiting = [port for port in self._reporting if port.name in self._until]
        if not waiting:
            return False
        asked = [port for port in waiting if port.owes_a_report()]
        if asked:
            if self._comes_within(self._patience_ms):
                return True
            for port in asked:
                port.report(wants=False)
        if self._comes_within(self._own_patience_ms):
            return True
        self._own_patience_ms = min(2 * self._own_patience_ms, MOST_PATIENCE_MS)
        for port in waiting:
            port.report()
        return False

    def _seconds_to_nearest(self) -> float:
        nearest_s = SLICE_S
        for name, until_ns in self._until.items():
            port = self._ports[name]
            due_ns = port.next_event_ns() if until_ns is None else until_ns
            seconds = None if due_ns is None else port.clock.seconds_until(due_ns)
            if seconds is not None:
                nearest_s = min(nearest_s, seconds)
        return nearest_s

    def _dispatch(self, frames: list[memoryview]) -> None:
        route = bytes(frames.pop(0)) if self._routed else b""
        try:
            message, stamp = decode(frames, self._run_id)
            port = self._addressed(message, route)
            if message.kind == ALIVE and isinstance(port, CoordinatorPort):
                self._alive_s[message.sender] = host_seconds()
            else:
                self._last_news_s = host_seconds()
            delivered = port.deliver(message, stamp, frame_sizes(frames))
        except BadMessage as problem:
            self._drop(frames, route, problem)
            return
        if message.kind == LICENCE:
            self._own_patience_ms = self._patience_ms
        if delivered:
            self._check.append(message.to)

    def _drop(self, frames: list[memoryview], route: bytes, problem: BadMessage) -> None:
        self._dropped[route] += 1
        count = self._dropped[route]
        if count > MOST_TOLD and count.bit_count() > 1:
            return
        so_far = f" ({count} from there so far)" if count > MOST_TOLD else ""
        total_bytes = sum(frame.nbytes for frame in frames)
        claimed = problem.message
        known = isinstance(claimed, Message) and claimed.sender in self._members
        source = (claimed.sender, claimed.channel, claimed.sequence) if known else (None, None, None)
        self._facts.tell("dropped", "/".join(self._ports), "malformed", f"{problem}{so_far}", total_bytes, *source)

    def _addressed(self, message: Message, route: bytes) -> Port:
        if message.sender not in self._members:
            raise BadMessage(f"{message.sender!r:.40} does not belong to this run")
        port = self._ports.get(message.to)
        if port is None:
            raise BadMessage(f"{message.to!r:.40} does not live here")
        if self.losses is not None and message.sender in self.losses.lost:
            raise BadMessage(f"{message.sender} has left the run")
        if self._routed:
            if message.kind in (JOIN, HELLO):
                self._routes.setdefault(message.sender, route)
            if self._routes.get(message.sender) != route:  # nobody speaks in another's name
                raise BadMessage(f"{message.sender} speaks from where it did not join")
        return port

    def _watch_if_due(self) -> None:
        now_s = host_seconds()
        if now_s - self._watched_s >= SLICE_S:
            self._watched_s = now_s
            for port in self._peers:
                port.tell_of_life()
            self._watch()

    def _watch(self) -> None:
        """Is the parent still there, and who waits for whom?"""
        self._facts.flush_if_due()
        if os.getppid() != self._parent:
            raise RunFailed("host", "has gone")
        if self.losses is not None:
            for actor in self.losses.unreached():
                self._lose(self.losses, actor, "the connection to it has ended")
        waited_s = host_seconds() - self._last_news_s
        for name in self._until:
            port = self._ports[name]
            if not port.is_owed():
                continue
            waits_for = f"has waited {waited_s:.0f} s: {port.waits_for()}"
            if waited_s > self._patience_s:
                silent = self._silent(port)
                if silent and isinstance(port, CoordinatorPort):
                    waits_for += f"; no sign of life of {few(silent)}"
                if self.losses is None and (silent or not self._alive_s):
                    raise RunFailed(name, waits_for)
                if self.losses is not None:
                    for actor in silent:
                        self._lose(self.losses, actor, f"{name} {waits_for}")
                continue
            if waited_s >= 5 and not self._alive_s and self._said != port.waits_for():
                self._said = port.waits_for()
                self._facts.tell("events", name, "waiting", waits_for, port.now_ns, host_seconds())
                self._facts.flush()

    def _silent(self, port: Port) -> list[str]:
        """Who owes `port` what it waits for, and has not even told that it is there for as long as its patience."""
        now_s = host_seconds()
        return [one for one in port.silent() if now_s - self._alive_s.get(one, 0.0) > self._patience_s]

    def _send_frame(self, frame: Frame, *, last: bool) -> None:
        flags = zmq.DONTWAIT if last else zmq.DONTWAIT | zmq.SNDMORE
        self._socket.send(frame, flags, copy=len(frame) < COPY_BELOW_BYTES)
