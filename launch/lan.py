"""One run over several machines: this one has the server, the record, and maybe clients; hosts that join have others.

What a run is does not change by that: only where its processes are, and what stands between them.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import zmq

from launch.addresses import reached_at
from launch.admission import Admission
from launch.checkpoints import Checkpoint
from launch.control import MOST_BYTES, seen_from
from launch.handover import Handover
from launch.host import Host
from launch.incoming import Incoming
from launch.limits import require_what_it_takes
from launch.lobby import Lobby
from launch.local import LocalRun
from launch.ownership import Ownership
from launch.placement import FORKED_BYTES, SPAWNED_BYTES, start_method
from launch.progress import Progress
from launch.reception import Reception, RemoteHost
from launch.recorder import dropped
from launch.shares import Capacity, shares
from nodes.curve import Keys
from nodes.gate import MOST_PENDING, Gate
from pflsim.errors import DescriptionError, RunFailed
from pflsim.spec import Algorithm, Description

VECTORS_EACH = 12
"""A client keeps about so many vectors of the model's length."""
POLL_MS = 200
THIS_MACHINE = "this machine"


class LanRun(LocalRun):
    """One run whose clients are on the machines that join."""

    _gate: Gate

    def __init__(
        self,
        description: Description,
        directory: Path,
        progress: Progress,
        lobby: Lobby,
        later: Sequence[Algorithm] = (),
    ) -> None:
        """Raises DescriptionError for more local clients than there are."""
        lan = lobby.lan
        if later and lan.starter is None:
            expected = "needs hosts for each method: one --algorithm at a time, or --hosts, which starts them each time"
            raise DescriptionError("beside", [table.name for table in later], expected)
        super().__init__(description, directory, progress, later)
        if not 0 <= lan.local_clients <= description.run.clients:
            raise DescriptionError("--local-clients", lan.local_clients, f"must be 0 to {description.run.clients}")
        require_what_it_takes(description.run.clients, len(self._assigned) + 2 * MOST_PENDING)
        self.lobby = lobby
        self._run_id = self._run_id if lobby.is_open else lobby.run_id  # what was said before a restart is not heard
        self._members = Keys.new() if lan.is_secure else None
        self._passes = {process: _new_pass() for process in self._assigned}
        self._hosts: dict[str, tuple[Host, dict[str, tuple[str, ...]]]] = {}
        """By name: each host, and the processes that it runs."""
        self._incoming = Incoming(self.checkpoints.folder)

    def start_clients(self, hub: str) -> None:
        """Start the clients' processes, each host its own."""
        for host, processes in self._hosts.values():
            if processes:
                self._start(host, processes, hub)

    @property
    def _reception(self) -> Reception:
        return self.lobby.reception

    def _listen(self, context: "zmq.Context[zmq.Socket[bytes]]") -> Reception:
        self._gate = Gate(context, self.lobby.strangers.put)
        self._at_the_end.callback(self._let_go)
        self._recorder.open(context)
        self._recorder.on_piece = self._incoming.take if self._keeps_checkpoints else None
        members = (self._members, self._members.public) if self._members else (None, b"")
        self._gate.guard(self._recorder.socket, "recorder", MOST_BYTES, *members)
        self._recorder.bind(f"tcp://{self.lobby.address}:*")
        self._gate.open()
        self.lobby.open(self.progress.say)
        self._reception.on_refused = lambda words: self._tell("launcher", "refused", words)
        self._reception.meanwhile = self.lobby.tend
        return self._reception

    def _let_go(self) -> None:
        self._gate.close()
        self.__dict__.pop("_gate", None)

    def _place(self, process: str) -> str:
        """The server is at every address of this machine that was asked for; peers say where they are, so at one."""
        is_hub = process == self._plan["hub"]
        return f"tcp://{self.lobby.address if is_hub else reached_at(self.lobby.address)}:*"

    def _common(self, hub: str) -> dict[str, Any]:
        here = reached_at(self.lobby.address)
        is_bound = not hub.endswith(":*")
        return super()._common(hub) | {
            "hub": seen_from(hub, here) if is_bound else hub,
            "recorder": seen_from(self._recorder.endpoint, here),
            "is_on_network": True,
            "keys": asdict(self._members) if self._members else None,
        }

    def _start_hub(self) -> None:
        hub = self._plan["hub"]
        self._passes[hub] = _new_pass()
        self._recorder.ownership = Ownership(self._assigned, hub, self._passes)
        super()._start_hub()

    def _pass_of(self, process: str) -> dict[str, Any]:
        """By what server and recorder know a process: nobody else knows it, so nobody else can speak in its name."""
        if process == self._plan["hub"]:
            actors = [(actor, self._passes[one]) for one, actors in self._assigned.items() for actor in actors]
            return {"passes": dict(actors), "own_pass": self._passes[process]}
        return {"own_pass": self._passes[process]}

    def _start(self, host: Host, processes: Any, hub: str) -> None:
        if not isinstance(host, RemoteHost):
            super()._start(host, processes, hub)
            return
        self._recorder.ahead_s |= dict.fromkeys(processes, host.ahead_s)
        common = self._common(hub) | {
            "hub": hub,
            "recorder": self._recorder.endpoint,
            "started_ns": host.on_its_clock(self._started_ns),
            "hands_in": self._keeps_checkpoints,
        }
        orders = [
            {"process": process, "actors": actors} | self._pass_of(process) for process, actors in processes.items()
        ]
        host.say("start", assignments=orders, common=common)

    def _note_checkpoint(self, round: int, files: dict[str, str], rows: dict[str, int]) -> None:
        if flaws := self._incoming.accept(round, files):
            self._recorder.write([dropped(flaw, 0) for flaw in flaws])
            return
        super()._note_checkpoint(round, files, rows)

    # who joins

    def _gather(self) -> None:
        """Wait for hosts: in a run that goes back to a checkpoint, only for those that are still there, if any are."""
        welcome = {"order": self._order(), "processes": len(self._assigned)}
        admission = Admission(self._reception, self._plan["has"], welcome, self._tell)
        admission.begin_again()
        least, deadline_s = 1, time.monotonic() + self.lobby.lan.await_s
        is_invited = False
        while not admission.is_complete(least):
            if not is_invited and not self._reception.hosts:
                is_invited = True
                self.lobby.invite(self.progress)
                least = self.lobby.awaited
            for host, said in self._news():
                admission.hear(host, said)
            if time.monotonic() > deadline_s:
                came = f"{len(admission.ready)} of {least} hosts have joined within {self.lobby.lan.await_s:g} s"
                raise RunFailed("launcher", f"{came}{admission.still_building}")
        self._share(admission.ready)

    def _meanwhile(self) -> None:
        super()._meanwhile()
        self._reception.beat()

    def _news(self) -> list[tuple[RemoteHost, dict[str, Any]]]:
        """What hosts say next, if they say something soon; the one of this machine has nothing to say yet."""
        poller = zmq.Poller()
        poller.register(self._reception.socket, zmq.POLLIN)
        poller.register(self._host.channel.fileno(), zmq.POLLIN)
        if self._host.channel.fileno() in dict(poller.poll(POLL_MS)):
            raise RunFailed("host", self._host.hear().get("reason", "has ended"))
        return self._reception.news()

    def _hand_over(self, checkpoint: Checkpoint) -> None:
        """Give each host what its clients were when a checkpoint was taken."""
        names: dict[RemoteHost, list[str]] = {}
        for host, processes in self._hosts.values():
            actors = {actor for own in processes.values() for actor in own}
            if isinstance(host, RemoteHost):
                names[host] = [name for name in checkpoint.files if name.rpartition(".")[0] in actors]
        handover = Handover(self.checkpoints.folder, checkpoint.round, names)
        while not handover.is_done:
            for host, said in self._news():
                handover.hear(host, said)

    def _tell(self, actor: str, what: str, words: str) -> None:
        """Record something about hosts, and say it."""
        self._recorder.note(actor, what, words)
        self.progress.say(words if actor == "launcher" else f"{actor}: {words}")

    def _order(self) -> dict[str, Any]:
        return super()._order() | {"tells_what_it_has": True}

    def _share(self, ready: Sequence[RemoteHost]) -> None:
        """Decide who runs which clients: both in their order, so that each host has neighbouring ones."""
        ready = sorted(ready, key=lambda host: host.name)
        offers, hosts = {host.name: host.offers for host in ready}, dict[str, Host]()
        if len(ready) < self.lobby.awaited:  # some are lost, whose share the others take
            offers = {name: replace(one, clients=None) for name, one in offers.items()}
        hosts |= {host.name: host for host in ready}
        if self.lobby.lan.local_clients:
            offers = {THIS_MACHINE: Capacity(psutil.cpu_count() or 1, 0, self.lobby.lan.local_clients)} | offers
            hosts[THIS_MACHINE] = self._host
        rest = list(self._assigned.items())
        own_bytes = FORKED_BYTES if start_method(self.description) == "fork" else SPAWNED_BYTES
        client_bytes = own_bytes + 4 * VECTORS_EACH * self._plan["facts"]["parameters"]
        sizes = [len(actors) for _, actors in rest]
        for name, count in shares(offers, sizes, client_bytes).items():
            mine, rest = dict(rest[:count]), rest[count:]
            self._hosts[name] = hosts[name], mine
            hosts[name].processes = tuple(mine)
            clients = sum(len(actors) for actors in mine.values())
            which = f", {' to '.join(sorted({min(mine), max(mine)}))}" if mine else ""
            self._tell(name, "placed", f"takes {clients} client{'' if clients == 1 else 's'}{which}")

    # how it ends

    def _end_hosts(self, status: str) -> None:
        super()._end_hosts(status)
        for words in self._gate.close():
            self._tell("launcher", "refused", words)
        if status == "failed" and self.description.run.on_loss == "restart":
            self.lobby.pause()
        else:
            self.lobby.end(status, self._tell)

    def _add_facts(self, facts: dict[str, Any]) -> None:
        others = [host for host, _ in self._hosts.values() if isinstance(host, RemoteHost)]
        facts["memory"]["peak_pss_bytes"] += sum(host.peak_bytes for host in others)
        facts["hosts"] = {name: sum(map(len, processes.values())) for name, (_, processes) in self._hosts.items()}


def _new_pass() -> bytes:
    return b"p" + secrets.token_bytes(16)  # a routing id must not begin with a zero
