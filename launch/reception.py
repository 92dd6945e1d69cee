"""The launcher's end of the hosts on other machines: who joins, whether they are still there, what they say."""

import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import zmq

from launch.control import BEAT_S, LOST_S, MOST_BYTES, packed, said_by_host, versions
from launch.shares import Capacity
from nodes.curve import Keys
from nodes.gate import MOST_TOLD, Gate
from pflsim.timing.clock import NANOSECONDS, host_nanoseconds

LONGEST_NAME = 64
MOST_AT_ONCE = 4096
"""So many messages are taken in one go, so that nobody who floods the launcher can keep it from its work."""
FAREWELL_S = 3.0
"""For so long hosts may take to end what runs there."""


class RemoteHost:
    """One host on another machine, as the launcher knows it."""

    is_here = False

    def __init__(self, name: str, route: bytes, socket: "zmq.Socket[bytes]", offers: Capacity) -> None:
        self.name, self.offers = name, offers
        self.is_ready = self.has_gone = False
        self.processes: tuple[str, ...] = ()
        self.heard_s = time.monotonic()
        self.logs = ""
        """Where it keeps the logs of its processes."""
        self.peak_bytes = 0
        self.route, self._socket = route, socket
        self._ahead_ns, self._round_trip_ns = 0, 1 << 62
        self._last_words: dict[str, str] = {}

    def say(self, what: str, **values: Any) -> None:
        """Send one map; who cannot be reached any more has gone."""
        try:
            self._socket.send_multipart([self.route, packed(what, **values)], zmq.DONTWAIT)
        except zmq.ZMQError:
            self.has_gone = True

    def on_its_clock(self, here_ns: int) -> int:
        """A time of this host's monotonic clock on that one's."""
        return here_ns + self._ahead_ns

    @property
    def ahead_s(self) -> float:
        """How far its monotonic clock is ahead of this one's."""
        return self._ahead_ns / NANOSECONDS

    def take_beat(self, said: Mapping[str, Any]) -> None:
        """It is there; of the exchanges with it, the fastest tells its clock best."""
        now_ns = host_nanoseconds()
        round_trip_ns = now_ns - said["sent_ns"]
        if 0 <= round_trip_ns < self._round_trip_ns:
            self._round_trip_ns = round_trip_ns
            self._ahead_ns = said["clock_ns"] - now_ns + round_trip_ns // 2
        self.peak_bytes = said["peak_bytes"]

    def remember(self, said: Mapping[str, Any]) -> None:
        """Keep the end of the log of a process that has ended."""
        if said["what"] == "ended":
            self._last_words[said["process"]] = str(said.get("log", ""))

    def last_words(self, process: str) -> str:
        """The end of the log of a process that has ended there, and where all of it lies."""
        words = self._last_words.get(process, "")
        return f"{words}\n    (all of it: {self.logs}/{process}.log on {self.name})".lstrip("\n")


class Reception:
    """All hosts on other machines, behind one socket."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        gate: Gate,
        run_id: bytes,
        most: int,
        keys: tuple[Keys, Keys] | None,
    ) -> None:
        """`keys` are the launcher's and those of who joins; `most` hosts may."""
        self.socket = context.socket(zmq.ROUTER)
        self.socket.set_hwm(0)
        self.socket.router_mandatory = True
        gate.guard(self.socket, "launcher", MOST_BYTES, *((keys[0], keys[1].public) if keys else (None, b"")))
        self._run_id = run_id
        self.most = most
        """So many hosts may be there."""
        self._hosts: dict[bytes, RemoteHost] = {}
        self._names: set[str] = set()
        self._turned_away: set[bytes] = set()
        """The routes of hosts that cannot take part; whatever they say after that is of no interest."""
        self._beaten_s, self._dropped = 0.0, 0
        self.strangers: SimpleQueue[str] = SimpleQueue()
        """Whom the gate has refused, in words that were not told yet."""
        self.on_refused: Callable[[str], None] = lambda words: None
        """Called with who was refused, or what was dropped, and why."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called whenever somebody asks for news."""

    @property
    def hosts(self) -> list[RemoteHost]:
        """Those that are there, in the order in which they joined."""
        return list(self._hosts.values())

    def news(self) -> list[tuple[RemoteHost, dict[str, Any]]]:
        """What hosts have said by now, and who is lost; tells all of them that the launcher is there."""
        said: list[tuple[RemoteHost, dict[str, Any]]] = []
        self.meanwhile()
        for _ in range(MOST_AT_ONCE):
            if not self.socket.poll(0):
                break
            route, *frames = self.socket.recv_multipart()
            try:
                one = self._take(route, said_by_host(frames))
            except ValueError as flaw:
                self._drop(frames, flaw)
                continue
            said += [one] if one else []
        while not self.strangers.empty():
            self.on_refused(self.strangers.get())
        self.beat()
        return said + self._lost()

    def lost_now(self) -> tuple[RemoteHost, dict[str, Any]] | None:
        """A host that has just gone, if one has: whom its clients spoke to may have noticed before."""
        for _ in range(2):
            self._beaten_s = 0.0
            if lost := [one for one in self.news() if one[1]["what"] in ("lost", "leaving")]:
                return lost[0]
            time.sleep(BEAT_S)
        return None

    def dismiss(self, host: RemoteHost, words: str) -> None:
        """Tell a host that it cannot take part, and forget it."""
        host.say("refused", words=words)
        self._turned_away.add(host.route)
        self._forget(host)

    def end(self, status: str) -> None:
        """Have all hosts end what runs there; they are given a moment to say that nothing is left."""
        for host in self.hosts:
            host.say("end", status=status)
        deadline_s = time.monotonic() + FAREWELL_S
        while self._hosts and time.monotonic() < deadline_s:
            if self.socket.poll(100):
                route, *frames = self.socket.recv_multipart()
                with suppress(ValueError):
                    if said_by_host(frames)["what"] == "gone":
                        self._hosts.pop(route, None)

    def _drop(self, frames: list[bytes], flaw: ValueError) -> None:
        """Count what no host says; a flood of it is told in short."""
        self._dropped += 1
        if self._dropped <= MOST_TOLD or self._dropped.bit_count() == 1:
            so_far = f" ({self._dropped} so far)" if self._dropped > MOST_TOLD else ""
            self.on_refused(f"dropped {sum(map(len, frames))} bytes: {flaw}{so_far}")

    def _take(self, route: bytes, said: dict[str, Any]) -> tuple[RemoteHost, dict[str, Any]] | None:
        host = self._hosts.get(route)
        if host is None:
            return self._greet(route, said)
        host.heard_s = time.monotonic()
        if said["what"] == "beat":
            host.take_beat(said)
            return None
        if said["what"] == "ended" and said["process"] not in host.processes:
            raise ValueError(f"{host.name} says that {said['process']!r:.40} has ended, which does not run there")
        host.remember(said)
        return host, said

    def _greet(self, route: bytes, said: dict[str, Any]) -> tuple[RemoteHost, dict[str, Any]] | None:
        """Take in whoever says hello, or say why not."""
        if route in self._turned_away:
            return None
        if said["what"] != "hello":
            raise ValueError(f"{said['what']!r:.40} from a host that has not joined")
        clients = said["clients"]
        offers = Capacity(
            max(1, int(said["cores"])), int(said["memory_bytes"]), None if clients is None else int(clients)
        )
        host = RemoteHost(self._name(str(said["name"])), route, self.socket, offers)
        if why := self._why_not(said):
            self.on_refused(f"refused {host.name}: {why}")
            self.dismiss(host, why)
            return None
        self._hosts[route] = host
        self._names.add(host.name)
        return host, said

    def _why_not(self, said: Mapping[str, Any]) -> str:
        if said["run_id"] != self._run_id:
            return "its token belongs to another run"
        for what, mine in versions().items():
            theirs = said["versions"].get(what)
            if theirs != mine:
                return f"it has {what} {theirs!s:.80}, the launcher has {mine}"
        if said["clients"] is not None and said["clients"] < 1:
            return f"it wants to take {said['clients']} clients"
        if len(self._hosts) >= self.most:
            return f"all {self.most} hosts of this run have joined already"
        return ""

    def _name(self, wanted: str) -> str:
        """As the host calls itself, unless another is called so."""
        first = "".join(letter for letter in wanted if letter.isalnum() or letter in "-._")[:LONGEST_NAME]
        first, number = first or platform.system().lower(), 1
        while (name := first if number == 1 else f"{first}-{number}") in self._names:
            number += 1
        return name

    def beat(self) -> None:
        """Tell all hosts now and then that the launcher is there."""
        if time.monotonic() - self._beaten_s >= BEAT_S:
            self._beaten_s = time.monotonic()
            for host in self.hosts:
                host.say("beat", sent_ns=host_nanoseconds())

    def _lost(self) -> list[tuple[RemoteHost, dict[str, Any]]]:
        lost: list[tuple[RemoteHost, dict[str, Any]]] = []
        for host in self.hosts:
            silent_s = time.monotonic() - host.heard_s
            if host.has_gone or silent_s > LOST_S:
                how = (
                    "the connection to it has ended" if host.has_gone else f"has not been heard of for {silent_s:.0f} s"
                )
                lost.append((host, {"what": "lost", "reason": how}))
                self._forget(host)
        return lost

    def _forget(self, host: RemoteHost) -> None:
        self._names.discard(host.name)
        self._hosts = {route: one for route, one in self._hosts.items() if one is not host}
