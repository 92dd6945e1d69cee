"""One run on this machine: starts a host, has it fork the actors, records what they tell, and ends all of it.

The launcher is also the recorder: the one process that writes `record.db`. It never imports torch.
"""

import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tomli_w
import zmq

from launch.checkpoints import Checkpoint, Checkpoints, Parts, code_of, described
from launch.ending import facts_of_run, in_words
from launch.host import Host, LocalHost
from launch.interrupts import interrupted_once, uninterrupted
from launch.limits import require_what_it_takes
from launch.own_code import keep_own_code
from launch.parting import Parting, facts_of_loss, warning_of_loss
from launch.placement import assignments, start_method
from launch.private_folder import PrivateFolder
from launch.progress import Progress
from launch.reception import Reception
from launch.recorder import Recorder
from launch.supervision import Supervision
from pflsim.errors import DescriptionError, RunFailed
from pflsim.record.database import Reader, Record
from pflsim.record.history import SERVER, History
from pflsim.record.report import summarise, write_summary
from pflsim.record.result import Result
from pflsim.spec import Algorithm, Description, client_names
from pflsim.timing.clock import host_nanoseconds

GOODBYE_S = 5.0
LOOPBACK = "tcp://127.0.0.1:*"
IMPORTS_S = 60.0
"""What a host may need on a busy machine before it can begin to build the study."""


class LocalRun:
    """One run from its description to its summary."""

    _private: PrivateFolder
    _recorder: Recorder
    _host: LocalHost
    _supervision: Supervision

    def __init__(
        self, description: Description, directory: Path, progress: Progress, later: Sequence[Algorithm] = ()
    ) -> None:
        """The methods that are going to run `later` on the same data are checked too, before this one starts."""
        self.description, self.directory, self.progress, self._later = description, directory, progress, later
        self._assigned = assignments(description)
        require_what_it_takes(description.run.clients, len(self._assigned))
        self._processes: tuple[str, ...] = ()
        self._started_s, self._started_ns = time.monotonic(), host_nanoseconds()
        self._logs = directory / "logs"
        self._plan: dict[str, Any] = {}
        self._run_id = secrets.token_bytes(8)
        self._at_the_end = ExitStack()
        self._is_open = self._is_ended = self._unsaved = False
        self._keeps_checkpoints, self.checkpoints = bool(description.run.checkpoint_every), Checkpoints(directory)

    def run(self) -> Result:
        """Run to the end. Raises DescriptionError, RunFailed or KeyboardInterrupt; nothing is left running.

        What is raised after the run has begun has a note that says where its record lies.
        """
        try:
            with interrupted_once():
                self._run()
        except (RunFailed, KeyboardInterrupt) as problem:
            if self._plan:
                problem.add_note(f"what was recorded lies in {self.directory}")
            if round := self.checkpoints.last_round():
                problem.add_note(f"`pflsim resume {self.directory}` goes on after round {round}")
            raise
        return Result.open(self.directory)

    def _run(self) -> None:
        status = "failed"
        try:
            with in_words(), uninterrupted():
                self._open()
            with in_words():
                self._build()
                self._gather()
                self._start_hub()
                self._supervision.watch(self.progress)
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

    def start_clients(self, hub: str) -> None:
        """Start the processes of all clients, which find the server or coordinator at the endpoint `hub`."""
        self._start(self._host, self._assigned, hub)

    def _open(self) -> None:
        """Whatever is opened is put down to be closed at once, so that nothing stays when the next step fails."""
        self._take_folder()
        last = self._at_the_end.callback
        run, record = self.description.run, self.description.record
        self._recorder = Recorder(self._record(), self._started_s, record.spans, self.progress)
        last(self._recorder.close)
        self._private = PrivateFolder()
        last(self._private.remove)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        last(context.destroy, linger=0)
        others = self._listen(context)
        self._recorder.on_bound = self.start_clients
        self._recorder.on_model = self._save_model
        self._host = LocalHost(self._logs / "host.log")
        last(self._host.end)
        self._open_log()
        self._supervision = Supervision(self._host, self._recorder, run.patience_s, others)
        if run.on_loss == "continue":
            self._supervision.parting = Parting(context, f"ipc://{self._private.path}/losses", self._recorder)
            self._supervision.parting.expect(self._assigned)
        self._is_open = True

    def _take_folder(self) -> None:
        """Make the folder of this run, which is removed if the run never begins."""
        try:
            self._logs.mkdir(parents=True)
        except OSError as problem:
            raise DescriptionError("--out", str(self.directory), f"cannot be made: {problem.strerror}") from problem
        self._at_the_end.callback(self._forget_what_never_began)
        if self._keeps_checkpoints:
            self._at_the_end.enter_context(self.checkpoints.hold())

    def _record(self) -> Record:
        """The record, open."""
        return Record(self.directory / "record.db", numbered=self._keeps_checkpoints)

    def _open_log(self) -> None:
        from pflsim.log import log_file, open_log  # here, as that takes 70 ms, in which the host goes on

        file = log_file(self._logs, "launcher")
        self._at_the_end.callback(file.close)
        level = self.description.record.log
        self._recorder.log = open_log("launcher", self._run_id, self._started_ns, file, level, None)

    def _listen(self, context: "zmq.Context[zmq.Socket[bytes]]") -> Reception | None:
        """Open the recorder's socket, and that for hosts on other machines, if there are to be any."""
        self._recorder.listen(context, f"ipc://{self._private.path}/recorder")
        return None

    def _gather(self) -> None:
        """Wait for the hosts on other machines, if there are to be any."""

    def _order(self) -> dict[str, Any]:
        """What every host builds."""
        return order_to_build(self.description, self._later, self._run_id) | {"tells_what_it_has": False}

    def _build(self) -> None:
        self._host.say("build", **self._order())
        longest_s = self.description.run.patience_s + IMPORTS_S
        said = self._host.hear_within(longest_s, self._meanwhile)
        if said["what"] == "refused":
            raise DescriptionError(said["key"], Shown(said["value"]), said["expected"])
        if said["what"] != "built":
            raise RunFailed("host", said["reason"])
        self._plan = said["plan"]
        self._processes = (self._plan["hub"], *self._assigned)
        self._recorder.expect(self._processes)
        self._supervision.expect(self._processes)
        if self._keeps_checkpoints:
            has_server = self._plan["hub"] == SERVER
            self._recorder.expect_checkpoints(self._processes if has_server else self._assigned)
            self._recorder.on_checkpoint = self._note_checkpoint
            self._parts = Parts(client_names(self.description.run.clients), has_server=has_server)
        self._keep_plan()
        if self._keeps_checkpoints:
            self._what_runs = described(self.directory), code_of(self.directory)

    def _meanwhile(self) -> None:
        """What is done now and then while this machine's host builds the study."""
        self.progress.update(())

    def _keep_plan(self) -> None:
        """Write down what is going to run."""
        self._recorder.write([("clients", *row) for row in self._plan["clients"]])
        for warning in self._plan["warnings"]:
            self._recorder.note("host", "warning", warning)
            self.progress.say(f"warning: {warning}")
        kept = keep_own_code(self._plan["effective"], self._plan["own_files"], self.directory)
        (self.directory / "run.toml").write_text(tomli_w.dumps(kept), encoding="utf-8")

    def _start_hub(self) -> None:
        hub = self._plan["hub"]
        self._start(self._host, {hub: (hub,)}, self._place(hub))

    def _place(self, process: str) -> str:
        """Where a process shall bind."""
        return f"ipc://{self._private.path}/{process}" if self.description.run.transport == "ipc" else LOOPBACK

    def _start(self, host: Host, processes: Mapping[str, tuple[str, ...]], hub: str) -> None:
        orders = [
            {"process": process, "actors": actors, "place": self._place(process)}
            | self._heeds(process)
            | self._pass_of(process)
            for process, actors in processes.items()
        ]
        host.say("start", assignments=orders, common=self._common(hub), logs=str(self._logs))

    def _heeds(self, process: str) -> dict[str, str]:
        """Where the server hears who is lost, if the run goes on without them."""
        parting = self._supervision.parting
        return {"losses": parting.endpoint} if parting is not None and process == self._plan["hub"] else {}

    def _pass_of(self, process: str) -> dict[str, Any]:
        """By what the server knows a process, where others could speak in its name."""
        return {}

    def _common(self, hub: str) -> dict[str, Any]:
        """What all processes of this machine are told."""
        common = {"hub": hub, "recorder": self._recorder.endpoint, "started_ns": self._started_ns}
        return common | ({"checkpoints": str(self.checkpoints.folder)} if self._keeps_checkpoints else {})

    def _note_checkpoint(self, round: int, files: dict[str, str], rows: dict[str, int]) -> None:
        """Actors have been written down: all of them, and what they had told before, when all parts are there."""
        if whole := self._parts.add(round, files, rows):
            now_s = time.monotonic() - self._started_s
            self.checkpoints.complete(Checkpoint(round, now_s, *whole, *self._what_runs))

    def _end(self, status: str) -> None:
        """End all that runs and keep what is known, once; whatever of it fails, the rest is still done."""
        if self._is_ended:
            return
        self._is_ended = True
        with in_words(unless=status != "done"), self._at_the_end:
            if not self._is_open:
                return
            if status == "done":
                self._recorder.await_goodbyes(self._supervision.awaited, GOODBYE_S)
            self._end_hosts(status)
            self.progress.close()
            self._recorder.take()
            self._recorder.take_held_back()
            if self._plan:
                self._recorder.note("launcher", status)
                self._write_summary(status)
            if status == "done":
                self.checkpoints.remove()

    def _save_model(self, actor: str, model: bytes) -> None:
        """The first of those that cannot be saved is told."""
        if model:
            folder = self.directory / "models"
            folder.mkdir(exist_ok=True)
            (folder / f"{actor}.safetensors").write_bytes(model)
        elif not self._unsaved:
            self._unsaved = True
            self.progress.say(f"the headline model of {actor} is a function, no vector of parameters: it is not saved")

    def _end_hosts(self, status: str) -> None:
        self._host.end()

    def _add_facts(self, facts: dict[str, Any]) -> None:
        """What the summary says beside what all runs say."""

    def _forget_what_never_began(self) -> None:
        if not self._plan:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _write_summary(self, status: str) -> None:
        facts = facts_of_run(status, self._plan, self._recorder, self._supervision, self._started_s)
        facts["memory"]["processes"] = len(self._processes) + 1
        lost, clients = self._recorder.lost, self.description.run.clients
        facts |= facts_of_loss(lost) | {"warnings": [*facts["warnings"], *warning_of_loss(lost, clients)]}
        self._add_facts(facts)
        with Reader(self.directory / "record.db") as reader:
            if self._plan["watts"]:
                facts["energy"] = self._tell_energy(reader)
            write_summary(self.directory / "summary.json", summarise(reader, facts))

    def _tell_energy(self, reader: Reader) -> dict[str, Any]:
        """Record what everybody has spent; it is worked out from what the record says of time."""
        from pflsim.record.absence import absences  # here, as most runs tell no energy
        from pflsim.record.energy import energies, summed

        history, asked = History.read(reader), self.description
        names, seed = client_names(asked.run.clients), asked.run.seed.train
        away = absences(asked.availability, asked.fault, names, seed, history.end_ns)
        spent = energies(history, self._plan["watts"], away)
        self._recorder.write([("energy", *one) for one in spent])
        return summed(spent)


def order_to_build(description: Description, later: Sequence[Algorithm], run_id: bytes) -> dict[str, Any]:
    """What a host is told that is to build what a description stands for, and to say what it has."""
    return {
        "tables": description.as_tables(),
        "at": description.algorithm.at,
        "later": [(table.model_dump(), table.at) for table in later],
        "run_id": run_id,
        "start": start_method(description),
        "tells_what_it_has": True,
    }


class Shown(str):
    """A value that was already made presentable where it was found."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
