"""`pflsim host --join TOKEN`: brings this machine's share of the clients to a run whose launcher is elsewhere.

This process does the talking; what it is told to start, a host of this machine starts, as in a run without others. It
ends all of it when the launcher says so, cannot be heard of any more, or when it is interrupted itself.
"""

import os
import platform
import socket as sockets
import struct
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import zmq

from launch.control import LOST_S, MOST_BYTES, packed, seen_from, unpacked, versions
from launch.handover import HandedOver
from launch.host import LAST_LINES, LocalHost, last_lines
from launch.interrupts import interrupted_once, uninterrupted
from launch.limits import require_what_it_takes
from launch.local import Shown
from launch.memory import Memory
from launch.token import Token
from nodes.curve import Keys, show
from pflsim.errors import DescriptionError, RunFailed
from pflsim.timing.clock import host_nanoseconds

REACH_S = 5.0
"""For so long each address of the launcher is tried."""
REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
EVENTS = sum(REFUSALS) | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
POLL_MS = 200
STANDARD_INPUT = 0
_EVENT = struct.Struct("=HI")
_NO_KEY = "who is there has other keys: this token is of another run"


class Joined:
    """This machine's part in one run."""

    def __init__(
        self, token: Token, clients: int | None, name: str, logs: Path | None, *, is_tied: bool = False
    ) -> None:
        """Who `is_tied` ends when its standard input does, as it does with the connection that has started it."""
        self._is_tied = is_tied
        self._token, self._clients, self._name, self._logs = token, clients, name, logs
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._host: LocalHost | None = None
        self._handed_over: HandedOver | None = None
        self._is_connected = False
        self._pids: dict[str, int] = {}
        self._memory = Memory()
        self._heard_s = time.monotonic()

    def run(self) -> str:
        """Take part until the run ends; how it ended. Raises DescriptionError, RunFailed or KeyboardInterrupt."""
        with interrupted_once():
            why = "was interrupted there"
            try:
                self._connect()
                return self._serve()
            except (DescriptionError, RunFailed) as problem:
                why = str(problem)
                raise
            finally:
                with uninterrupted():
                    self._end(why)

    def _connect(self) -> None:
        """Reach the launcher at one of its addresses, and offer what this machine has. Raises RunFailed."""
        tried = []
        for address in self._token.addresses:
            self._launcher = address.rsplit(":", 1)[0]
            if not (why_not := self._try(address)):
                break
            tried.append(f"at {address}: {why_not}")
        else:
            raise RunFailed("launcher", f"cannot be reached {'; '.join(tried)}")
        self._say(
            "hello",
            run_id=self._token.run_id,
            name=self._name,
            versions=versions(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1,
            memory_bytes=psutil.virtual_memory().available,
            clients=self._clients,
            python=platform.python_version(),
        )

    def _try(self, address: str) -> str:
        """Connect to an address of the launcher; why that cannot be, if it cannot."""
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(0)
        self._socket.maxmsgsize = MOST_BYTES
        if self._token.launcher:
            show(self._socket, Keys.of(self._token.joining), self._token.launcher)
        self._events = self._socket.get_monitor_socket(EVENTS)
        deadline_s, why_not = time.monotonic() + REACH_S, "nobody answers: has it ended, or is a firewall between?"
        try:
            self._here = _this_end(self._launcher)
            self._socket.connect(f"tcp://{address}")
            while self._events.poll(max(0, int((deadline_s - time.monotonic()) * 1000))):
                event, _ = _EVENT.unpack(self._events.recv_multipart()[0])
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._is_connected, self._heard_s = True, time.monotonic()
                    return ""
                if event in REFUSALS:
                    why_not = _NO_KEY
                    break
        except (OSError, zmq.ZMQError) as problem:
            why_not = str(problem)
        self._socket.disable_monitor()
        self._events.close()
        self._socket.close(linger=0)
        return why_not

    def _say(self, what: str, **values: Any) -> None:
        self._socket.send(packed(what, **values))

    def _serve(self) -> str:
        """Carry what is said to and fro."""
        poller = zmq.Poller()
        for one in (self._socket, self._events):
            poller.register(one, zmq.POLLIN)
        if self._is_tied:
            poller.register(STANDARD_INPUT, zmq.POLLIN)
        heard, descriptor = self._host, -1
        while True:
            ready = dict(poller.poll(POLL_MS))
            while self._socket.poll(0):
                said = unpacked(self._socket.recv_multipart())
                self._heard_s = time.monotonic()
                if said["what"] == "end":
                    return str(said["status"])
                self._obey(said)
            if self._host is not None and self._host is not heard:
                if heard is not None:
                    poller.unregister(descriptor)
                heard, descriptor = self._host, self._host.channel.fileno()
                poller.register(descriptor, zmq.POLLIN)
            elif self._host is not None and descriptor in ready:
                self._pass_on(self._host.hear())
            if self._events in ready:  # after all that came before
                self._judge(*_EVENT.unpack(self._events.recv_multipart()[0]))
            if STANDARD_INPUT in ready and not os.read(STANDARD_INPUT, 1024):
                raise RunFailed("launcher", "what has started this host is gone; whatever ran here has been ended")
            self._refuse_silence(time.monotonic() - self._heard_s)
            self._memory.sample_if_cheap(list(self._pids.values()))

    def _judge(self, event: int, _: int) -> None:
        """Once connected, the connection may only end."""
        if event == zmq.EVENT_DISCONNECTED:
            raise RunFailed("launcher", "the connection to it has ended; whatever ran here has been ended, too")

    def _refuse_silence(self, silent_s: float) -> None:
        if silent_s > LOST_S:
            reason = f"has not been heard of for {silent_s:.0f} s; whatever ran here has been ended"
            raise RunFailed("launcher", reason)

    def _obey(self, said: dict[str, Any]) -> None:
        if said["what"] == "beat":
            peak_bytes = self._memory.peak_bytes
            self._say("beat", sent_ns=said["sent_ns"], clock_ns=host_nanoseconds(), peak_bytes=peak_bytes)
        elif said["what"] == "refused":
            raise RunFailed("launcher", f"refuses this host: {said['words']}")
        elif said["what"] == "welcome":
            self._build(said)
        elif said["what"] == "piece" and self._handed_over is not None:
            self._handed_over.take(said)
            self._say("took")
        elif said["what"] == "pause":
            self._heard_s = time.monotonic() + said["for_s"]
        elif said["what"] == "start" and self._host is not None:
            self._host.say("start", **self._placed(said), logs=str(self._logs))

    def _build(self, said: dict[str, Any]) -> None:
        """Have a host of this machine load the data and make everything that all its processes share."""
        how = "joined" if self._host is None else "goes back to a checkpoint in"
        self._end_host()
        self._name = said["name"]
        run_id = self._token.run_id.hex()
        self._logs = (self._logs or Path("results") / f"host-{self._name}-{run_id}").absolute()
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise DescriptionError("--logs", str(self._logs), f"cannot be made: {problem.strerror}") from problem
        require_what_it_takes(said["order"]["tables"]["run"]["clients"], said["processes"])
        print(f"{how} the run of {self._launcher} as {self._name}; loading the data (logs: {self._logs})", flush=True)
        self._handed_over = HandedOver(self._logs)
        self._host = LocalHost(self._logs / "host.log")
        self._host.say("build", **said["order"])

    def _placed(self, said: dict[str, Any]) -> dict[str, Any]:
        """The launcher's order with what only this machine knows: how it reaches the launcher, and where it binds."""
        common = said["common"]
        ends = {which: seen_from(common[which], self._launcher) for which in ("hub", "recorder")}
        if "checkpoints" in common and self._handed_over is not None:
            ends["checkpoints"] = str(self._handed_over.folder)
        place = {"place": f"tcp://{self._here}:*"}
        return {"assignments": [one | place for one in said["assignments"]], "common": common | ends}

    def _pass_on(self, said: dict[str, Any]) -> None:
        """Tell the launcher what the host of this machine says."""
        if said["what"] == "built":
            said["plan"]["logs"] = str(self._logs)
        elif said["what"] == "started":
            self._pids |= said["pids"]
            how = "" if self._is_tied else "; Ctrl-C ends the whole run"
            print(f"processes that run here now: {len(self._pids)}{how}", flush=True)
        elif said["what"] == "ended":
            self._pids.pop(said["process"], None)
            if said["code"] != 0:
                said["log"] = last_lines(Path(f"{self._logs}/{said['process']}.log"), LAST_LINES)
        self._socket.send(packed(**said))
        if said["what"] == "refused":
            raise DescriptionError(said["key"], Shown(said["value"]), said["expected"])
        if said["what"] == "failed":
            raise RunFailed("host", said["reason"])

    def _end_host(self) -> None:
        if self._host is not None:
            self._host.end()
            self._pids.clear()
        if self._handed_over is not None:
            self._handed_over.forget()

    def _end(self, why: str) -> None:
        """End what runs here, and say so."""
        self._end_host()
        if self._is_connected:
            self._say("leaving", reason=why)
            self._say("gone")
        self._context.destroy(linger=500)


def _this_end(address: str) -> str:
    """This machine's address on the way to another; nothing is sent."""
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as way:
        way.connect((address, 9))
        return str(way.getsockname()[0])


def join(text: str, clients: int | None, name: str | None, logs: Path | None, *, is_tied: bool = False) -> None:
    """What the command does."""
    if clients is not None and clients < 1:
        raise DescriptionError("--clients", clients, "must be at least 1")
    if text == "-":
        text = sys.stdin.readline().strip()
    joined = Joined(Token.read(text), clients, name or sockets.gethostname(), logs, is_tied=is_tied)
    status = joined.run()
    if status != "done":
        raise RunFailed("launcher", f"the run was {status}: its launcher says why; all that ran here has been ended")
    print("the run is done")
