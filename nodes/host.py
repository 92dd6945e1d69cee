"""The host: imports torch and loads the data once, then forks the processes of a run on command.

It stays a pure zygote. It has one thread, never opens a ZeroMQ context, and runs one tiny training step before the
first fork, so that no child pays for what torch does the first time. It tells the launcher who has ended and how.
"""

import errno
import faulthandler
import gc
import os
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodes.channel import Channel
from nodes.forking import hand_on_libraries, use_huge_pages
from nodes.parent import die_with_parent
from nodes.roster import roster, what_it_has
from nodes.speed import speed_here
from pflsim.errors import DescriptionError
from pflsim.outside import blamed

MANY = 100
"""From so many forks on it pays to ready the host's memory for them, which takes some 0.4 s."""


class Host:
    """Does what the launcher says, until it goes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._processes: dict[int, str] = {}
        self._study: Any = None
        self._order: dict[str, Any] = {}
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the launcher has gone; then nothing is left of the run here."""
        while True:
            readable, _, _ = select.select([self._channel.fileno(), self._woken], [], [])
            if self._woken in readable:
                self._reap()
            if self._channel.fileno() in readable:
                order = self._channel.hear()
                if order is None:
                    break
                self._obey(order)
        for pid in self._processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _obey(self, order: dict[str, Any]) -> None:
        if order["what"] == "build":
            self._build(order)
        elif order["what"] == "start":
            common = order["common"] | {"logs": order["logs"]}
            self._start([one | common for one in order["assignments"]], order["logs"])
        elif order["what"] == "time":
            self._channel.say("timed", flops_per_second=speed_here(self._study))

    def _build(self, order: dict[str, Any]) -> None:
        self._order = order
        try:
            gc.disable()  # what is made now stays until the end, so looking through it again and again is in vain
            self._study = build(order)
            self._study.warm_up()
            plan = self._study.plan() | {"clients": roster(self._study)}
            if order["tells_what_it_has"]:
                plan["has"] = what_it_has(self._study)
            gc.enable()
            gc.collect()
            gc.freeze()
        except BaseException as problem:  # a model or a data set may try to end the process, too
            wrong = problem if isinstance(problem, DescriptionError) else blamed(problem)
            if wrong is None:
                self._channel.say("failed", reason=f"could not build the study\n{traceback.format_exc()}".rstrip())
            else:
                self._channel.say("refused", key=wrong.key, value=repr(wrong.value), expected=wrong.expected)
        else:
            self._channel.say("built", plan=plan)

    def _start(self, assignments: list[dict[str, Any]], logs: str) -> None:
        """Start all of them and answer once: an answer each could fill the channel while nobody reads it."""
        pids, forked = {}, self._order["start"] == "fork"
        if forked and len(assignments) > MANY:
            hand_on_libraries(self._study.warm_up)
            use_huge_pages()
        for assignment in assignments:
            log = f"{logs}/{assignment['process']}.log"
            try:
                pid = self._fork(assignment, log) if forked else spawn(self._order, assignment, log)
            except OSError as problem:
                self._channel.say("failed", reason=_cannot_start(assignment["process"], len(self._processes), problem))
                return
            self._processes[pid] = assignment["process"]
            pids[assignment["process"]] = pid
        self._channel.say("started", pids=pids)

    def _fork(self, assignment: dict[str, Any], log: str) -> int:
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._channel.close()
            os.close(self._woken)
            code = become(self._study, assignment, log, parent)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)  # never return into the host's own loop, whatever happened

    def _reap(self) -> None:
        while True:
            try:
                os.read(self._woken, 4096)
            except BlockingIOError:
                break
        while self._processes:
            pid, status, used = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            process = self._processes.pop(pid, None)
            if process is not None:
                code, processor_s = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
                self._channel.say("ended", process=process, code=code, processor_s=processor_s)


def _cannot_start(process: str, running: int, problem: OSError) -> str:
    reason = f"cannot start {process} beside {running} processes: {problem.strerror}"
    if problem.errno == errno.EAGAIN:
        reason += "; allow more processes (ulimit -u), or set run.clients_per_process so that clients share processes"
    return reason


def build(order: dict[str, Any]) -> Any:
    """The study that the launcher's order describes; imports torch, so it is only called where that is wanted."""
    import torch

    torch.set_num_threads(1)
    import nodes.process  # noqa: F401  so that no child has to import what it runs
    from pflsim.spec import Algorithm, validate
    from pflsim.study import Study

    description = validate(order["tables"])
    method = description.algorithm.placed(order["at"])
    study = Study(description.model_copy(update={"algorithm": method}), order["run_id"])
    for table, at in order["later"]:
        study.require(Algorithm(**table).placed(at))
    return study


def become(study: Any, assignment: dict[str, Any], log: str, parent: int) -> int:
    """Turn this fresh process into what `assignment` says; its exit code."""
    from nodes.curve import Keys
    from nodes.process import Assignment, live

    die_with_parent(parent)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    keys = assignment.get("keys")
    found = {"actors": tuple(assignment["actors"]), "keys": None if keys is None else Keys(**keys)}
    return live(study, Assignment(**assignment | found))


def spawn(order: dict[str, Any], assignment: dict[str, Any], log: str) -> int:
    """Start a fresh interpreter that builds the study for itself; slower, but safe where forking is not."""
    here, there = Channel.pair()
    command = [sys.executable, "-P", "-m", "nodes.host", "--spawned", str(there.fileno()), str(os.getpid())]
    with Path(log).open("ab") as output:
        process = subprocess.Popen(command, pass_fds=[there.fileno()], stdout=output, stderr=output)
    there.close()
    here.say("become", order=order, assignment=assignment, log=log)
    here.close()
    process.returncode = 0  # the host reaps its children itself, by their ids
    return process.pid


def main() -> None:
    """`python -m nodes.host DESCRIPTOR PARENT`: a host at the end of the launcher's channel."""
    spawned = sys.argv[1] == "--spawned"
    sys.path.append(str(Path.cwd()))  # where a user's "package.module:function" lies
    descriptor, parent = (int(argument) for argument in sys.argv[-2:])
    die_with_parent(parent)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's to handle
    channel = Channel.from_descriptor(descriptor)
    if not spawned:
        Host(channel).run()
        return
    told = channel.hear()
    channel.close()
    if told is not None:
        os._exit(become(build(told["order"]), told["assignment"], told["log"], parent))


if __name__ == "__main__":
    main()
