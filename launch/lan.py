"""One run over several machines: this one has the server, the record, and maybe clients; hosts that join have others.

What a run is does not change by that: only where its processes are, and what stands between them.
"""

import socket as sockets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import zmq

from launch.admission import Admission
from launch.control import ANY, MOST_BYTES, seen_from
from launch.host import Host
from launch.limits import require_what_it_takes
from launch.local import LocalRun
from launch.placement import FORKED_BYTES, SPAWNED_BYTES, start_method
from launch.progress import Progress
from launch.reception import Reception, RemoteHost
from launch.shares import Capacity, shares
from launch.token import Token
from nodes.curve import Keys
from nodes.gate import MOST_PENDING, Gate
from pflsim.errors import DescriptionError, RunFailed
from pflsim.spec import Algorithm, Description

VECTORS_EACH = 12
"""A client keeps about so many vectors of the model's length."""
POLL_MS = 200
THIS_MACHINE = "this machine"


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


def lan_of(listen: str | None, *, insecure: bool, **given: float | None) -> Lan | None:
    """What the command line says of other machines. Raises DescriptionError for what makes no sense without them."""
    said = {name: value for name, value in given.items() if value is not None}
    if listen is None:
        if said or insecure:
            option = "insecure" if insecure else min(said)
            raise DescriptionError(f"--{option.replace('_', '-')}", said.get(option, True), "needs --listen")
        return None
    hosts, local = int(said.get("await_hosts", 1)), int(said.get("local_clients", 0))
    return Lan(listen, hosts, said.get("await_s", 600.0), local, not insecure)


class LanRun(LocalRun):
    """One run whose clients are on the machines that join."""

    _reception: Reception
    _gate: Gate

    def __init__(
        self, description: Description, directory: Path, progress: Progress, lan: Lan, later: Sequence[Algorithm] = ()
    ) -> None:
        """Raises DescriptionError for a place where it cannot listen, or more local clients than there are."""
        if later or description.beside:
            names = [table.name for table in (*later, *description.beside)]
            raise DescriptionError("beside", names, "cannot run over several machines yet: one --algorithm at a time")
        if description.run.checkpoint_every:
            expected = "must be 0: over several machines no checkpoints can be taken yet"
            raise DescriptionError("run.checkpoint_every", description.run.checkpoint_every, expected)
        super().__init__(description, directory, progress)
        self._address, self._port = _address(lan.listen)
        if not 0 <= lan.local_clients <= description.run.clients:
            raise DescriptionError("--local-clients", lan.local_clients, f"must be 0 to {description.run.clients}")
        require_what_it_takes(description.run.clients, len(self._assigned) + 2 * MOST_PENDING)
        self._lan = lan
        self._own, self._joining, self._members = (Keys.new() if lan.is_secure else None for _ in range(3))
        self._hosts: dict[str, tuple[Host, dict[str, tuple[str, ...]]]] = {}
        """By name: each host, and the processes that it runs."""

    def start_clients(self, hub: str) -> None:
        """Start the clients' processes, each host its own."""
        for host, processes in self._hosts.values():
            if processes:
                self._start(host, processes, hub)

    def _listen(self, context: "zmq.Context[zmq.Socket[bytes]]") -> Reception:
        strangers: SimpleQueue[str] = SimpleQueue()
        self._gate = Gate(context, strangers.put)
        self._recorder.open(context)
        members = (self._members, self._members.public) if self._members else (None, b"")
        self._gate.guard(self._recorder.socket, "recorder", MOST_BYTES, *members)
        both = (self._own, self._joining) if self._own and self._joining else None
        self._reception = Reception(context, self._gate, self._run_id, self._lan.hosts, both)
        self._reception.strangers = strangers
        self._reception.on_refused = lambda words: self._tell("launcher", "refused", words)
        self._at_the_end.callback(self._let_go)
        self._recorder.bind(f"tcp://{self._address}:*")
        endpoint = f"tcp://{self._address}:{self._port}"
        try:
            self._reception.socket.bind(endpoint)
        except zmq.ZMQError as problem:
            raise DescriptionError("--listen", endpoint, f"cannot be listened at: {problem.strerror}") from problem
        self._gate.open()
        return self._reception

    def _let_go(self) -> None:
        self._gate.close()
        self.__dict__.pop("_reception", None)
        self.__dict__.pop("_gate", None)

    def _place(self, process: str) -> str:
        """The server is at every address of this machine that was asked for; peers say where they are, so at one."""
        is_hub = process == self._plan["hub"]
        return f"tcp://{self._address if is_hub else _reached_at(self._address)}:*"

    def _common(self, hub: str) -> dict[str, Any]:
        here = _reached_at(self._address)
        is_bound = not hub.endswith(":*")
        return {
            "hub": seen_from(hub, here) if is_bound else hub,
            "recorder": seen_from(self._recorder.endpoint, here),
            "started_ns": self._started_ns,
            "is_on_network": True,
            "keys": asdict(self._members) if self._members else None,
        }

    def _start(self, host: Host, processes: Any, hub: str) -> None:
        if not isinstance(host, RemoteHost):
            super()._start(host, processes, hub)
            return
        self._recorder.ahead_s |= dict.fromkeys(processes, host.ahead_s)
        common = self._common(hub) | {
            "hub": hub,
            "recorder": self._recorder.endpoint,
            "started_ns": host.on_its_clock(self._started_ns),
        }
        orders = [{"process": process, "actors": actors} for process, actors in processes.items()]
        host.say("start", assignments=orders, common=common)

    # who joins

    def _gather(self) -> None:
        self._progress.announce(self._invitation())
        welcome = {"order": self._order(), "processes": len(self._assigned)}
        admission = Admission(self._reception, self._plan["has"], welcome, self._tell)
        deadline_s = time.monotonic() + self._lan.await_s
        poller = zmq.Poller()
        poller.register(self._reception.socket, zmq.POLLIN)
        poller.register(self._host.channel.fileno(), zmq.POLLIN)
        while len(admission.ready) < self._lan.hosts:
            if self._host.channel.fileno() in dict(poller.poll(POLL_MS)):
                raise RunFailed("host", self._host.hear().get("reason", "has ended"))
            for host, said in self._reception.news():
                admission.hear(host, said)
            if time.monotonic() > deadline_s:
                came = f"{len(admission.ready)} of {self._lan.hosts} hosts have joined within {self._lan.await_s:g} s"
                raise RunFailed("launcher", f"{came}{admission.still_building}")
        self._share(admission.ready)

    def _tell(self, actor: str, what: str, words: str) -> None:
        """Record something about hosts, and say it."""
        self._recorder.note(actor, what, words)
        self._progress.say(words if actor == "launcher" else f"{actor}: {words}")

    def _order(self) -> dict[str, Any]:
        return super()._order() | {"tells_what_it_has": True}

    def _invitation(self) -> str:
        address, found = self._address, self._reception.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        port = found.rsplit(":", 1)[1]
        addresses = tuple(f"{one}:{port}" for one in (_all_addresses() if address == ANY else [address]))
        keys = (self._own.public, self._joining.secret) if self._own and self._joining else (b"", b"")
        count = f"{self._lan.hosts} machine{'s' if self._lan.hosts > 1 else ''}"
        plain = "" if self._lan.is_secure else " (without keys: whoever reaches this machine can take part)"
        return f"waiting for {count}{plain}; on each: pflsim host --join {Token(addresses, self._run_id, *keys)}"

    def _share(self, ready: Sequence[RemoteHost]) -> None:
        """Decide who runs which clients: both in their order, so that each host has neighbouring ones."""
        ready = sorted(ready, key=lambda host: host.name)
        offers, hosts = {host.name: host.offers for host in ready}, dict[str, Host]()
        hosts |= {host.name: host for host in ready}
        if self._lan.local_clients:
            offers = {THIS_MACHINE: Capacity(psutil.cpu_count() or 1, 0, self._lan.local_clients)} | offers
            hosts[THIS_MACHINE] = self._host
        rest = list(self._assigned.items())
        own_bytes = FORKED_BYTES if start_method(self.description) == "fork" else SPAWNED_BYTES
        client_bytes = own_bytes + 4 * VECTORS_EACH * self._plan["facts"]["parameters"]
        sizes = [len(actors) for _, actors in rest]
        for name, count in shares(offers, sizes, client_bytes).items():
            mine, rest = dict(rest[:count]), rest[count:]
            self._hosts[name] = hosts[name], mine
            clients = sum(len(actors) for actors in mine.values())
            which = f", {' to '.join(sorted({min(mine), max(mine)}))}" if mine else ""
            self._tell(name, "placed", f"takes {clients} client{'' if clients == 1 else 's'}{which}")

    # how it ends

    def _end_hosts(self, status: str) -> None:
        super()._end_hosts(status)
        self._reception.end(status)
        for words in self._gate.close():
            self._tell("launcher", "refused", words)

    def _add_facts(self, facts: dict[str, Any]) -> None:
        others = [host for host, _ in self._hosts.values() if isinstance(host, RemoteHost)]
        facts["memory"]["peak_pss_bytes"] += sum(host.peak_bytes for host in others)
        facts["hosts"] = {name: sum(map(len, processes.values())) for name, (_, processes) in self._hosts.items()}


def _address(listen: str) -> tuple[str, int]:
    """The address and port to listen at. Raises DescriptionError."""
    expected = "must be tcp://ADDRESS:PORT, such as tcp://0.0.0.0:5555 (all addresses of this machine)"
    address, _, port = listen.removeprefix("tcp://").rpartition(":")
    try:
        sockets.inet_aton(address)
        if not listen.startswith("tcp://") or not 0 <= int(port) < 1 << 16:
            raise ValueError
    except (OSError, ValueError) as problem:
        raise DescriptionError("--listen", listen, expected) from problem
    return address, int(port)


def _all_addresses() -> list[str]:
    """Where other machines may find this one; where there is no network, this machine itself can."""
    first = ""
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as way, suppress(OSError):
        way.connect(("192.0.2.1", 9))  # sends nothing; the address towards everybody else is the likeliest
        first = way.getsockname()[0]
    found = [
        one.address
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family == sockets.AF_INET and not one.address.startswith("127.")
    ]
    return sorted(set(found), key=lambda one: (one != first, one)) or ["127.0.0.1"]


def _reached_at(address: str) -> str:
    return _all_addresses()[0] if address == ANY else address
