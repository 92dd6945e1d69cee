"""The recorder: takes what a run's processes tell, writes it into the record, and keeps what the launcher needs."""

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from logging import INFO, WARNING
from typing import Any

import msgpack
import zmq

from launch.ownership import Ownership
from launch.peer_rounds import PeerRounds
from launch.progress import Progress
from nodes.kept_files import PIECE
from nodes.standstill import CHECKPOINT, UNDER_WAY, Standstill
from pflsim.errors import RunFailed
from pflsim.record.database import Reader, Record
from pflsim.record.tables import flaw_of

MOST_AT_ONCE = 4096
"""So many batches are taken in one go, so that nobody who floods the recorder can keep the launcher from its work."""
MOST_BYTES_AT_ONCE = 1 << 28
"""The same of bytes: whoever takes part in the run hands in what it is for checkpoints, which may be much."""
MOST_SAID = 5
"""So many rejected uploads are told one by one."""

Fact = tuple[Any, ...]


class Recorder:
    """The one process that writes `record.db`, at the socket to which all others tell their facts."""

    def __init__(self, record: Record, started_s: float, keeps_spans: bool, progress: Progress) -> None:
        """`started_s` is the host's clock when the command began."""
        self._record = record
        self._standstill = Standstill(())
        self._expected: frozenset[str] = frozenset()
        self._hub = ""
        self._started_s, self._keeps_spans = started_s, keeps_spans
        self._peer_rounds = PeerRounds()
        self._progress = progress
        self.on_bound: Callable[[str], None] = lambda endpoint: None
        """Called with the endpoint at which the server can be found."""
        self.log: Any = None
        """Where what the launcher itself notes is logged too."""
        self.on_model: Callable[[str, bytes], None] = lambda actor, model: None
        """Called with an actor whose model shall be saved, and the file's bytes; none for what is no vector."""
        self.on_finished: Callable[[], None] = lambda: None
        """Called when the server has said that the run is finished."""
        self.on_checkpoint: Callable[[int, dict[str, str], dict[str, int]], None] = lambda round, files, rows: None
        """Called when all actors stand after a round, with the digests of their files and the record's last rows; and
        with more files of that round, and no rows."""
        self.on_piece: Callable[[int, str, bytes], str] | None = None
        """Called with a part of a file of a checkpoint: round, name, bytes; says why it is not wanted, if it is not."""
        self.said_goodbye: set[str] = set()
        self.finished: dict[str, Any] | None = None
        """What the server says at the end of a run."""
        self.died: dict[str, str] = {}
        """Of what, by the process that could still tell."""
        self.lost: dict[str, str] = {}
        """Who has left the run, which goes on without them, and why."""
        self.rejected = 0
        """Uploads that were not finite."""
        self.setup_s = 0.0
        self.ownership: Ownership | None = None
        """Who may tell what, where processes of other machines do; on one machine all of them are ours."""
        self.ahead_s: dict[str, float] = {}
        """By process on another machine: how far its clock is ahead of this one's."""

    def expect(self, processes: Sequence[str]) -> None:
        """These will tell something; the first is that of the server or the coordinator."""
        self._expected, self._hub = frozenset(processes), processes[0]

    def expect_checkpoints(self, processes: Collection[str]) -> None:
        """The actors of these processes will stand now and then."""
        self._standstill = Standstill(processes)

    def remember(self, reader: Reader) -> None:
        """What it would know of a run that it had recorded from the beginning."""
        self.rejected = len(reader.query("SELECT 1 FROM events WHERE what = 'rejected'"))
        for began_s, detail in reader.query("SELECT wall_s, detail FROM events WHERE what = 'began'"):
            self._begin(began_s, detail)

    def listen(self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str) -> None:
        """Open the socket at `endpoint`."""
        self.open(context)
        self.bind(endpoint)

    def open(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        """Make the socket; who may come to it is still to be decided."""
        self.socket = context.socket(zmq.PULL)
        self.socket.set_hwm(0)

    def bind(self, endpoint: str) -> None:
        """Let others come; where, `endpoint` says from then on."""
        self.socket.bind(endpoint)
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def take(self) -> None:
        """Write all that has come by now; what nobody of this run can have told is counted and dropped."""
        facts: list[Fact] = []
        bound: list[str] = []
        models: list[Fact] = []
        for process, batch in self._batches(facts):
            if batch is None:
                self.said_goodbye.add(process)
            for told in map(tuple, batch or ()):
                for fact in self._admitted(process, told):
                    if fact[:1] == ("bound",):
                        bound += [fact[2]] if process == self._hub and len(fact) == 3 else []
                    elif fact[:1] == ("model",) and _is_model(fact):
                        models.append(fact)
                    elif fact[:1] == (UNDER_WAY,) and len(fact) == 3:
                        self.on_checkpoint(fact[1], fact[2], {})
                    elif fact[:1] == (CHECKPOINT,) and len(fact) == 3:
                        self._keep(facts)
                        facts.clear()
                        self.on_checkpoint(fact[1], fact[2], self._record.last_rows())
                    else:
                        facts.append(fact)
        self._keep(facts)
        for _, actor, model in models:
            self.on_model(actor, model)
        for endpoint in bound:
            self.on_bound(endpoint)

    def _batches(self, facts: list[Fact]) -> Iterator[tuple[str, list[list[Any]] | None]]:
        """What processes have told by now, as far as it can be taken in one go; `facts` gets what is no batch."""
        come_bytes = 0
        for _ in range(MOST_AT_ONCE):
            if come_bytes > MOST_BYTES_AT_ONCE or not self.socket.poll(0):
                break
            frames = self.socket.recv_multipart()
            come_bytes += sum(map(len, frames))
            try:
                yield self._read(frames)
            except ValueError as flaw:
                facts.append(dropped(str(flaw), sum(map(len, frames))))

    def _admitted(self, process: str, told: Fact) -> Iterator[Fact]:
        """What there is to be recorded, or done, now that a process tells this."""
        if self.ownership is not None and (why := self.ownership.flaw_of(process, told)):
            yield dropped(why, 0)
        elif told[:1] == (PIECE,) and self.on_piece is not None:
            _, round, name, piece = told
            if why := self.on_piece(round, name, piece):
                yield dropped(why, len(piece))
        else:
            yield from self._standstill.sorted(process, self._on_this_clock(process, told))

    def await_goodbyes(self, processes: Collection[str], within_s: float) -> None:
        """Go on until all of `processes` have said that nothing more will come of them, or that time is over."""
        deadline_s = time.monotonic() + within_s
        while not self.said_goodbye.issuperset(processes) and time.monotonic() < deadline_s:
            if self.socket.poll(100):
                self.take()

    def take_held_back(self) -> None:
        """Write what was held back for a checkpoint to which it will never come."""
        self._keep(list(self._standstill.given_up()))

    def note(self, actor: str, what: str, detail: str = "") -> None:
        """Record an event of the launcher's own."""
        self._record.write([("events", actor, what, detail, 0, time.monotonic() - self._started_s)])
        if self.log is not None:
            self.log.log(WARNING if what == "warning" else INFO, what, **({"detail": detail} if detail else {}))

    def write(self, facts: Iterable[Fact]) -> None:
        """Record facts that the launcher itself knows."""
        self._record.write(facts)

    def close(self) -> None:
        """Close the record, and let go of the socket: its context must not outlive the run until some collection."""
        self.__dict__.pop("socket", None)
        self._record.close()

    def _read(self, frames: list[bytes]) -> tuple[str, list[list[Any]] | None]:
        """Who tells which facts (None: goodbye); ValueError says why nobody of this run can have told that."""
        try:
            process, batch = msgpack.unpackb(b"".join(frames))
        except (ValueError, TypeError, msgpack.UnpackException) as problem:
            raise ValueError(f"it cannot be read ({problem or type(problem).__name__})") from problem
        if self.ownership is not None:
            process = self.ownership.process_of(process)
        if not isinstance(process, str) or process not in self._expected:
            raise ValueError(f"no process is called {process!r:.40}")
        if batch is not None and not (isinstance(batch, list) and all(map(_names_a_table, batch))):
            raise ValueError(f"{process} tells what is no list of facts")
        return process, batch

    def _keep(self, facts: list[Fact]) -> None:
        events = [fact for fact in facts if fact[:1] == ("events",) and flaw_of(fact) is None]
        facts = [self._since_start(fact) for fact in facts if self._keeps_spans or fact[:1] != ("spans",)]
        facts += self._peer_rounds.done(facts, self._running_s())
        try:
            self._record.write(facts)
        except (ValueError, OverflowError, sqlite3.IntegrityError, sqlite3.ProgrammingError):
            flaws = [(fact, flaw_of(fact)) for fact in facts]
            facts = [fact if flaw is None else dropped(flaw, 0) for fact, flaw in flaws]
            self._record.write(facts)
        except AssertionError as problem:
            raise RunFailed("recorder", str(problem)) from problem
        for _, actor, what, detail, *_ in events:
            self._take_event(actor, what, detail)
        self._progress.update(facts)

    def _running_s(self) -> float:
        """Host seconds since the first round began."""
        return time.monotonic() - self._started_s - self.setup_s

    def _since_start(self, fact: Fact) -> Fact:
        """An event with its time since the command began, not on the host's clock."""
        if fact[:1] == ("events",) and flaw_of(fact) is None:
            return (*fact[:5], (fact[5] or self._started_s) - self._started_s)
        return fact

    def _on_this_clock(self, process: str, fact: Fact) -> Fact:
        """An event that a process on another machine tells, with its time on this machine's clock."""
        if process in self.ahead_s and fact[:1] == ("events",) and flaw_of(fact) is None and fact[5]:
            return (*fact[:5], fact[5] - self.ahead_s[process])
        return fact

    def _take_event(self, actor: str, what: str, detail: str) -> None:
        if what == "finished":
            self.finished = _read_json(detail)
            self.on_finished()
        elif what == "lost":
            self.lost[actor] = detail
            if self._peer_rounds.peers:
                self._keep(self._peer_rounds.lose(int(actor[1:]), self._running_s()))
            self._progress.say(f"{actor} is lost: {detail}; the run goes on without it")
        elif what == "died":
            self.died[actor] = detail
        elif what == "began":
            self._begin(time.monotonic() - self._started_s, detail)
        elif what == "waiting":
            self._progress.say(f"{actor}: {detail}")
        elif what in ("rejected", "skipped"):
            self.rejected += what == "rejected"
            if what == "skipped" or self.rejected <= MOST_SAID:
                self._progress.say(detail)

    def _begin(self, setup_s: float, detail: str) -> None:
        self.setup_s = setup_s
        if detail.endswith(" peers"):
            self._peer_rounds.peers = int(detail.removesuffix(" peers"))


def _names_a_table(fact: Any) -> bool:
    return isinstance(fact, list) and bool(fact) and isinstance(fact[0], str)


def _is_model(fact: Fact) -> bool:
    return len(fact) == 3 and isinstance(fact[1], str) and fact[1].isalnum() and isinstance(fact[2], bytes)


def dropped(flaw: str, total_bytes: int) -> Fact:
    """The fact that something came which nobody of the run can have told."""
    return ("dropped", "recorder", "malformed", flaw, total_bytes, None, None, None)


def _read_json(text: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        found = json.loads(text)
        return found if isinstance(found, dict) else None
    return None
