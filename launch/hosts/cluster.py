"""Hosts on the workers of an existing Dask cluster, wherever that runs: on machines by ssh, Slurm, PBS or Kubernetes.

One long task on each worker runs `pflsim host` as a child. What the child says comes back as events of the cluster.
Whoever can read the cluster's own traffic can read the token in it.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from launch.addresses import ANY_PORT
from launch.hosts.bringing import TOPIC, bring
from launch.hosts.starting import FAREWELL_S, Say
from launch.token import Token
from pflsim.errors import DescriptionError, RunFailed, few

SCHEMES = {"dask": "tcp", "dask+tls": "tls"}
CONNECT_S = 10.0
CLOSE_S = 2.0
POLL_S = 0.02
EXTRA = "needs the package distributed: pip install 'pflsim[dask]'"


class DaskWorkers:
    """The workers of one cluster."""

    listen = ANY_PORT

    def __init__(self, address: str, awaited: int | None) -> None:
        """At the scheduler's address; `awaited` is how many workers are waited for, or those that are there will do.

        Raises DescriptionError.
        """
        self._given, self._awaited = address, awaited
        scheme, _, place = address.partition("://")
        if scheme not in SCHEMES or not place:
            expected = "must be dask://HOST:PORT of a scheduler, or dask+tls://HOST:PORT"
            raise DescriptionError("--cluster", address, expected)
        self._scheduler = f"{SCHEMES[scheme]}://{place}"
        self._workers: dict[str, str] = {}
        """Their addresses, by the name of the host on each."""
        self._client: Any = None
        self._tasks: dict[str, Any] = {}
        self._joined: set[str] = set()
        self._lines: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def count(self, await_s: float) -> int:
        """How many workers there are. Raises DescriptionError where there is no cluster, RunFailed for too few."""
        with self._connected() as client:
            if self._awaited:
                with suppress(TimeoutError):
                    client.wait_for_workers(self._awaited, timeout=await_s)
            found = sorted(client.nthreads())[: self._awaited]
        if len(found) < (self._awaited or 1):
            raise RunFailed("cluster", f"it has {len(found)} of {self._awaited or 1} workers")
        self._workers = {_name(address): address for address in found}
        return len(found)

    def start(self, token: Token) -> str:
        """Have each worker bring a host."""
        self._joined = set()
        self._client = self._open()
        self._client.subscribe_topic(TOPIC, self._hear)
        for name, address in self._workers.items():
            self._tasks[name] = self._client.submit(
                bring,
                str(token),
                name,
                key=f"pflsim-{token.run_id.hex()}-{name}",
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
        count = f"{len(self._workers)} host{'s' * (len(self._workers) > 1)}"
        return f"starting {count} on the workers of {self._given}: {few(list(self._workers))}"

    def tend(self, joined: Collection[str], say: Say) -> None:
        """Say what they have said since. Raises RunFailed for one whose task ended before it had joined."""
        self._joined |= set(joined)
        self._say_on(say)
        for name, task in self._tasks.items():
            if name not in self._joined and task.done():
                raise RunFailed(name, self._why_not(task))

    def end(self, say: Say) -> None:
        """Leave the cluster. The hosts have ended with the run; what has not joined gives up by itself."""
        if self._client is None:
            return
        client, self._client = self._client, None
        deadline_s = time.monotonic() + FAREWELL_S
        while time.monotonic() < deadline_s and not all(task.done() for task in self._tasks.values()):
            time.sleep(POLL_S)
        client.cancel(list(self._tasks.values()))
        self._tasks = {}
        client.close(timeout=CLOSE_S)
        self._say_on(say)

    def _say_on(self, say: Say) -> None:
        while not self._lines.empty():
            name, line = self._lines.get()
            say(f"[{name}] {line}")

    def _hear(self, event: Any) -> None:
        """In a thread of the cluster's library."""
        _, said = event
        if isinstance(said, dict) and said.get("name") in self._workers:
            self._lines.put((said["name"], str(said.get("line", ""))))

    def _why_not(self, task: Any) -> str:
        if task.status == "finished":
            code, last = task.result()
            return f"ended before it had joined, with exit code {code}: {last.removeprefix('pflsim: ')}".rstrip(": ")
        problem = task.exception()
        said = f"{type(problem).__name__}: {problem}".splitlines()[0]
        return f"its worker cannot bring a host: {said}"

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        client = self._open()
        try:
            yield client
        finally:
            client.close(timeout=CLOSE_S)

    def _open(self) -> Any:
        try:
            import distributed
        except ImportError as problem:
            raise DescriptionError("--cluster", self._given, EXTRA) from problem
        connect: Any = distributed.Client
        try:
            return connect(self._scheduler, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as problem:
            said = str(problem).splitlines()[0]
            raise DescriptionError("--cluster", self._given, f"no Dask scheduler answers there: {said}") from problem


def _name(address: str) -> str:
    """What a worker's host is called: its address without what a name cannot have."""
    return address.rpartition("://")[2].replace(":", "-").replace("[", "").replace("]", "")
