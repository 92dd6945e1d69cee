"""What a process of a run does: it gives its actors a mailroom and ports, runs them, and leaves in good order."""

import faulthandler
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from nodes.curve import Keys, show
from nodes.facts import FactSender
from nodes.gate import Gate
from nodes.inspection import Inspection
from nodes.keeping import Keeper, Silent
from nodes.kept_files import Folder, HandedIn
from nodes.losses import Losses
from nodes.mailroom import Mailroom
from nodes.programs import STATES, port_of, program_of
from nodes.standstill import ActorsRecorder, Standstill
from pflsim.errors import PflsimError
from pflsim.log import FactLog, log_file, open_log
from pflsim.messages.port import Recorder
from pflsim.outside import told
from pflsim.study import Study
from pflsim.timing.clock import clock_maker, host_seconds

LINGER_MS = 5000
FAILED = 1
LATER_S = 5.0
"""So much longer peers wait for each other than their coordinator does for a sign of life: it can say who is stuck."""
LEAST_BOUND_BYTES = 1 << 26
MOST_MODELS_PER_FRAME = 64
"""Over a network, no frame is taken that is larger than that of so many models, or than the bytes above."""


@dataclass(frozen=True)
class Assignment:
    """Which actors a process runs, and where it finds the others."""

    process: str
    actors: tuple[str, ...]
    hub: str
    """Where the server's or the coordinator's socket is bound; where it shall bind, for itself."""
    place: str
    """Where the socket of a process of peers shall bind."""
    recorder: str
    logs: str
    """The folder of this run's logs."""
    started_ns: int
    is_on_network: bool = False
    """Whether its sockets can be reached from other machines."""
    checkpoints: str = ""
    """The folder of the checkpoints; empty if none are taken."""
    hands_in: bool = False
    """Whether the recorder is given what is written down, because its disk is that of another machine."""
    resumed: int = 0
    """The round after whose checkpoint the run goes on; 0 for one that begins."""
    keys: Keys | None = None
    """What all processes of the run show each other there; None for a run that wants no keys."""
    passes: Mapping[str, bytes] = field(default_factory=dict)
    """For a server on a network: by client, from where it will speak; without, from where it says that it joins."""
    own_pass: bytes = b""
    """For a process on a network: by what the recorder knows it, and the server one of clients, and nobody else."""
    losses: str = ""
    """Where the launcher says who is lost, for a server that goes on without them; else nothing."""

    @property
    def teller(self) -> str | bytes:
        """In whose name this process tells facts."""
        return self.own_pass or self.process


def live(study: Study, assignment: Assignment) -> int:
    """Run the assigned actors to their end; the exit code of this process."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    context = zmq.Context(io_threads=1)
    context.setsockopt(zmq.MAX_SOCKETS, 64)
    file, level = log_file(Path(assignment.logs), assignment.process), study.description.record.log
    log = open_log(assignment.process, study.run_id, assignment.started_ns, file, level, sys.stderr)
    facts = FactSender(context, assignment.recorder, assignment.teller, FactLog(log), assignment.keys)
    try:
        log.info("began", actors=len(assignment.actors))
        _run(study, assignment, context, facts)
        code = 0
    except BaseException as problem:
        reason = _in_words(problem, len(assignment.actors) > 1)
        facts.tell("events", assignment.process, "died", reason, 0, host_seconds())
        with suppress(OSError):  # the disk may be full
            log.error("died", exc_info=_stack_of(problem), reason=reason)
        code = FAILED
    else:
        with suppress(OSError):
            log.info("finished")
    facts.close()
    context.destroy(linger=LINGER_MS)
    return code


def _in_words(problem: BaseException, is_shared: bool) -> str:
    """What was raised, and of which kind; in a process that several actors share, in whose program it was."""
    said = str(problem) if isinstance(problem, PflsimError) else told(problem)
    return ": ".join([*(getattr(problem, "__notes__", []) if is_shared else []), said])


def _stack_of(problem: BaseException) -> BaseException | None:
    """What has the stack that helps: of a user's own method what that raised; none for what tells all itself."""
    return problem.__cause__ if isinstance(problem, PflsimError) else problem


def _run(study: Study, assignment: Assignment, context: "zmq.Context[zmq.Socket[bytes]]", facts: FactSender) -> None:
    runs_hub = study.hub in assignment.actors
    socket = context.socket(zmq.ROUTER if runs_hub or study.is_for_peers else zmq.DEALER)
    socket.set_hwm(0)
    socket.linger = LINGER_MS
    members = (study.hub, *study.names) if study.is_for_peers else study.names if runs_hub else (study.hub,)
    gate = None
    if assignment.own_pass and not runs_hub and not study.is_for_peers:
        socket.setsockopt(zmq.ROUTING_ID, assignment.own_pass)
    if runs_hub or study.is_for_peers:
        socket.router_mandatory = True
        socket.setsockopt(zmq.ROUTING_ID, assignment.process.encode())
        gate = _gate(study, assignment, context, socket) if assignment.is_on_network else None
        socket.bind(assignment.hub if runs_hub else assignment.place)
    if assignment.keys is not None:
        show(socket, assignment.keys, assignment.keys.public)
    patience_ms = 0 if study.is_for_peers and not study.appointments.are_everybodys else 5
    patience_s = study.description.run.patience_s + (0.0 if runs_hub or not study.is_for_peers else LATER_S)
    mailroom = Mailroom(socket, study.run_id, members, facts, patience_s, assignment.process, patience_ms)
    mailroom.know(assignment.passes if not study.is_for_peers else {})
    if runs_hub:
        mailroom.losses = Losses(context, socket, assignment.losses) if assignment.losses else None
        facts.tell("bound", *mailroom.place)
        facts.flush()
    elif study.is_for_peers:
        mailroom.meet(study.hub, study.hub, assignment.hub)
    else:
        socket.connect(assignment.hub)
    new_clock = clock_maker(study.description.time.mode, assignment.started_ns)
    standstill = Standstill(assignment.actors)
    recorders = {name: ActorsRecorder(name, standstill, facts) for name in assignment.actors}
    keeper = _keeper(study, assignment, recorders, facts) if assignment.checkpoints else None
    for name, recorder in recorders.items():
        facts_to = Silent() if assignment.resumed else recorder if keeper else facts  # who is resumed has joined before
        port = port_of(study, name, new_clock(), mailroom, facts_to)
        if assignment.is_on_network:
            port.inspect = Inspection(study, name)
        mailroom.add(port, program_of(study, name, keeper))
    try:
        mailroom.run()
    finally:
        for fact in standstill.given_up():
            facts.tell(*fact)
        for words in gate.close() if gate is not None else ():
            facts.tell("events", assignment.process, "refused", words, 0, host_seconds())


def _keeper(study: Study, assignment: Assignment, recorders: Mapping[str, Recorder], facts: Recorder) -> Keeper:
    every, folder = study.description.run.checkpoints, Path(assignment.checkpoints)
    files = HandedIn(folder, facts) if assignment.hands_in else Folder(folder)
    return Keeper(files, every.rounds, recorders.__getitem__, STATES, assignment.resumed, every.host_s)


def _gate(
    study: Study, assignment: Assignment, context: "zmq.Context[zmq.Socket[bytes]]", socket: "zmq.Socket[bytes]"
) -> Gate:
    """The gate of the socket of this process, open; it tells the recorder itself, being a thread of its own."""
    facts = FactSender(context, assignment.recorder, assignment.teller, keys=assignment.keys)

    def tell(words: str) -> None:
        facts.tell("events", assignment.process, "refused", words, 0, host_seconds())
        facts.flush()

    gate = Gate(context, tell)
    most_bytes = max(LEAST_BOUND_BYTES, MOST_MODELS_PER_FRAME * 4 * study.network.layout.dimension)
    keys = assignment.keys
    gate.guard(socket, assignment.process, most_bytes, keys, keys.public if keys else b"")
    gate.open()
    return gate
