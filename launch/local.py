"""One run on this machine: starts a host, has it fork the actors, records what they tell, and ends all of it.

The launcher is also the recorder: the one process that writes `record.db`. It never imports torch.
"""

import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgpack
import tomli_w
import zmq

from launch.host import LocalHost, how_it_ended, last_lines
from launch.interrupts import interrupted_once, uninterrupted
from launch.limits import require_open_files
from launch.memory import Memory
from launch.placement import assignments, start_method
from launch.progress import Progress
from pflsim.errors import DescriptionError, RunFailed
from pflsim.record.database import Reader, Record
from pflsim.record.report import summarise, write_summary
from pflsim.record.result import Result
from pflsim.spec import Algorithm, Description
from pflsim.timing.clock import host_nanoseconds

GOODBYE_S = 5.0
LONGEST_END_S = 30.0
LAST_LINES = 15
MOST_SAID = 5
"""So many rejected uploads are told one by one."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class LocalRun:
    """One run from its description to its summary."""

    _private: Path
    _record: Record
    _facts: "zmq.Socket[bytes]"

    def __init__(
        self, description: Description, directory: Path, progress: Progress, later: Sequence[Algorithm] = ()
    ) -> None:
        """The methods that are going to run `later` on the same data are checked too, before this one starts."""
        self.description, self.directory, self._progress, self._later = description, directory, progress, later
        require_open_files(len(assignments(description)))
        self._started_s, self._started_ns = time.monotonic(), host_nanoseconds()
        self._logs = directory / "logs"
        self._context = zmq.Context()
        self._is_open = False
        self._host: LocalHost | None = None
        self._assigned = assignments(description)
        self._running: dict[str, int] = {}
        self._ended: set[str] = set()
        self._said_goodbye: set[str] = set()
        self._finished: dict[str, Any] | None = None
        self._died: dict[str, str] = {}
        self._memory = Memory()
        self._setup_s = self._processor_s = 0.0
        self._rejected = 0
        self._plan: dict[str, Any] = {}

    def run(self) -> Result:
        """Run to the end. Raises DescriptionError, RunFailed or KeyboardInterrupt; nothing is left running."""
        with interrupted_once():
            self._run()
        return Result.open(self.directory)

    def _run(self) -> None:
        status = "failed"
        try:
            with uninterrupted():
                self._open()
            self._host = LocalHost(self._logs / "host.log")
            self._build(self._host)
            self._start_server()
            self._supervise(self._host)
            status = "done"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            try:
                with uninterrupted():
                    self._end(status)
            except KeyboardInterrupt:  # just before the block or just after it; there is only one
                with uninterrupted():
                    self._end("interrupted")
                raise

    def start_clients(self, server: str) -> None:
        """Start the processes of all clients, which find the server at the endpoint `server`."""
        self._start(self._assigned, server)

    def _open(self) -> None:
        self._logs.mkdir(parents=True)
        self._record = Record(self.directory / "record.db")
        self._private = Path(tempfile.mkdtemp(prefix="pflsim-"))
        self._facts = self._context.socket(zmq.PULL)
        self._facts.set_hwm(0)
        self._recorder = f"ipc://{self._private}/recorder"
        self._facts.bind(self._recorder)
        self._is_open = True

    def _build(self, host: LocalHost) -> None:
        order = {
            "tables": self.description.as_tables(),
            "at": self.description.algorithm.at,
            "later": [(table.model_dump(), table.at) for table in self._later],
            "run_id": secrets.token_bytes(8),
            "start": start_method(self.description),
        }
        host.channel.say("build", **order)
        said = host.hear()
        if said["what"] == "refused":
            raise DescriptionError(said["key"], Shown(said["value"]), said["expected"])
        if said["what"] != "built":
            raise RunFailed("host", "could not build the study\n" + said["traceback"])
        self._plan = said["plan"]
        for warning in self._plan["warnings"]:
            self._note("host", "warning", warning)
            self._progress.say(f"warning: {warning}")
        (self.directory / "run.toml").write_text(tomli_w.dumps(self._plan["effective"]), encoding="utf-8")

    def _start_server(self) -> None:
        ipc = f"ipc://{self._private}/server"
        self._start({"server": ("server",)}, ipc if self.description.run.transport == "ipc" else "tcp://127.0.0.1:*")

    def _start(self, processes: Mapping[str, tuple[str, ...]], server: str) -> None:
        common = {"server": server, "recorder": self._recorder, "started_ns": self._started_ns}
        assignments = [{"process": process, "actors": actors} | common for process, actors in processes.items()]
        assert self._host is not None
        self._host.channel.say("start", assignments=assignments, logs=str(self._logs))

    def _supervise(self, host: LocalHost) -> None:
        poller = zmq.Poller()
        poller.register(self._facts, zmq.POLLIN)
        poller.register(host.channel.fileno(), zmq.POLLIN)
        last_news_s = time.monotonic()
        while self._finished is None or len(self._ended) < len(self._assigned) + 1:
            ready = dict(poller.poll(500))
            if ready:
                last_news_s = time.monotonic()
            self._refuse_silence(time.monotonic() - last_news_s)
            if self._facts in ready:
                self._take_facts()
            if host.channel.fileno() in ready:
                self._take_news(host.hear())
            self._memory.sample_if_cheap(list(self._running.values()))
            self._progress.update(())

    def _refuse_silence(self, silent_s: float) -> None:
        """The last guard against a hang: the server and the mailrooms have limits of their own, and name who waits."""
        limit_s = LONGEST_END_S if self._finished else self.description.run.patience_s + LONGEST_END_S
        if silent_s > limit_s:
            remaining = sorted({"server", *self._assigned} - self._ended)
            shown = ", ".join(remaining[:8]) + (f" and {len(remaining) - 8} more" if len(remaining) > 8 else "")
            raise RunFailed("launcher", f"has heard nothing for {silent_s:.0f} s; still there: {shown}")

    def _take_facts(self) -> None:
        facts: list[tuple[Any, ...]] = []
        while self._facts.poll(0):
            process, batch = msgpack.unpackb(self._facts.recv())
            if batch is None:
                self._said_goodbye.add(process)
            for fact in map(tuple, batch or ()):
                if fact[0] == "bound":
                    self.start_clients(fact[2])
                    continue
                if fact[0] == "events":
                    fact = (*fact[:5], fact[5] - self._started_s)
                    self._take_event(*fact[1:4])
                if fact[0] != "spans" or self.description.record.spans:
                    facts.append(fact)
        self._record.write(facts)
        self._progress.update(facts)

    def _take_event(self, actor: str, what: str, detail: str) -> None:
        if what == "finished":
            self._finished = json.loads(detail)
            self._memory.sample(list(self._running.values()))
        elif what == "died":
            self._died[actor] = detail
        elif what == "began":
            self._setup_s = time.monotonic() - self._started_s
        elif what in ("waiting", "rejected", "skipped"):
            self._progress.say(f"{actor}: {detail}" if what == "waiting" else detail)

    def _take_news(self, said: Mapping[str, Any]) -> None:
        if said["what"] == "started":
            self._running |= said["pids"]
        elif said["what"] == "ended":
            process = said["process"]
            self._running.pop(process, None)
            self._ended.add(process)
            self._processor_s += said["processor_s"]
            if said["code"] != 0:
                self._fail(process, said["code"])
        elif said["what"] == "failed":
            raise RunFailed("host", said["traceback"])

    def _fail(self, process: str, code: int) -> NoReturn:
        deadline_s = time.monotonic() + 1
        while code > 0 and process not in self._said_goodbye and time.monotonic() < deadline_s:
            if self._facts.poll(100):
                self._take_facts()
        reason = self._died.get(process, "")
        log = last_lines(self._logs / f"{process}.log", LAST_LINES)
        told = f"{how_it_ended(code)}{': ' + reason if reason else ''}"
        raise RunFailed(process, f"{told}\n{log}".rstrip())

    def _end(self, status: str) -> None:
        if not self._is_open:
            return
        self._is_open = False
        deadline_s = time.monotonic() + GOODBYE_S
        expected = {"server", *self._assigned}
        while status == "done" and self._said_goodbye < expected and time.monotonic() < deadline_s:
            if self._facts.poll(100):
                self._take_facts()
        if self._host is not None:
            self._host.end()
        if self._facts.poll(0):
            self._take_facts()
        self._progress.close()
        self._context.destroy(linger=0)
        shutil.rmtree(self._private, ignore_errors=True)
        if self._plan:
            self._note("launcher", status, "")
            self._write_summary(status)
        self._record.close()
        if not self._plan:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _note(self, actor: str, what: str, detail: str) -> None:
        self._record.write([("events", actor, what, detail, 0, time.monotonic() - self._started_s)])

    def _write_summary(self, status: str) -> None:
        finished = self._finished or {}
        facts: Mapping[str, Any] = {
            "status": status,
            **self._plan["facts"],
            "rounds": finished.get("rounds", 0),
            "stopped": finished.get("stopped", status),
            "rejected_uploads": self._rejected,
            "warnings": self._plan["warnings"],
            "time": {
                "simulated_s": finished.get("simulated_s"),
                "wall_s": time.monotonic() - self._started_s,
                "cpu_s": self._processor_s,
                "setup_s": self._setup_s,
                "host_clock_at_start_s": self._started_s,
            },
            "memory": {"peak_pss_bytes": self._memory.peak_bytes, "processes": len(self._assigned) + 2},
            "digest": finished.get("digest"),
            "trace_digest": finished.get("trace_digest"),
        }
        with Reader(self.directory / "record.db") as reader:
            write_summary(self.directory / "summary.json", summarise(reader, facts))


class Shown(str):
    """A value that was already made presentable where it was found."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
