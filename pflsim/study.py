"""Everything that a run description stands for, built: data, network, method, federation, schedule, time.

A host builds it once; every process that it forks finds it in memory. Nothing here starts a process or a clock.
"""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from pflsim import catalogue, topology
from pflsim.data.loading import Data
from pflsim.data.loading import load as load_data
from pflsim.effective import effective
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors
from pflsim.learning.model import load as load_model
from pflsim.learning.model import require_batches
from pflsim.learning.task import Split, Task, Work
from pflsim.learning.vector import Network
from pflsim.method import REQUIRED
from pflsim.record.database import packed
from pflsim.rng import stream
from pflsim.schedule import Schedule
from pflsim.spec import Algorithm, Description, client_names
from pflsim.timing.devices import Devices
from pflsim.timing.links import Links

BACKWARD_PER_FORWARD = 2.0
"""A backward pass multiplies by each weight matrix twice, a forward pass once."""

_BEFORE_THE_FIRST_VISIT = -1
_PACKAGES = ("pflsim", "torch", "numpy", "pyzmq", "msgpack", "scikit-learn")


class Study:
    """What a description describes. Raises DescriptionError for what cannot work."""

    def __init__(self, description: Description, run_id: bytes) -> None:
        self.description, self.run_id = description, run_id
        self.names = client_names(description.run.clients)
        self.number_of = {name: number for number, name in enumerate(self.names)}
        self._check_names()
        with reported_at(description.algorithm.at):
            self.method, self.method_name = self._method(description.algorithm), description.algorithm.name
        self.schedule = self._schedule()
        self.training = description.training
        self.data: Data = load_data(description.data.model_dump(), description.run.seed.data, len(self.names))
        self._partition_digest = self.data.partition.digest  # here, so that no process works it out again
        model = description.model.model_dump()
        self.network: Network = load_model(
            model, self.data.shape, self.data.classes, stream(description.run.seed.init, "model")
        )
        self._x, self._y = torch.from_numpy(self.data.x), torch.from_numpy(self.data.y)
        self.initial = self.network.initial(stream(description.run.seed.init, "init"))
        self.warnings: list[str] = []
        self.federation = self._federation()
        self._check_cohort()
        require_batches(self.network, self.training, self.names, self.federation.sizes.tolist(), self._evaluated())
        self.devices = Devices(
            description.devices,
            self.names,
            description.run.seed.train,
            sizes=self.federation.sizes.tolist(),
            labels=self._main_labels(),
        )
        self.links = Links(description.links, ("server", *self.names), description.run.seed.train)
        with reported_at(description.algorithm.at):
            self.warnings += self._checked(self.method)

    def require(self, table: Algorithm) -> None:
        """Raises DescriptionError if the method of `table` could not run in the place of this study's own."""
        with reported_at(table.at):
            self._checked(self._method(table))

    @property
    def rounds(self) -> int:
        """How many rounds the run has at most."""
        run = self.description.run
        return min(run.rounds, run.stop.rounds or run.rounds)

    @property
    def evaluated_splits(self) -> tuple[Split, ...]:
        """On which parts of a client's data its models are evaluated."""
        return ("test", "validation") if self.description.data.settings.get("validation") else ("test",)

    def is_evaluated(self, done: int) -> bool:
        """Whether there is an evaluation when `done` rounds are done; after the last there is, unless never."""
        every = self.description.run.eval_every
        return bool(every) and (done % every == 0 or done == self.rounds)

    def client(self, number: int) -> Client:
        """Client `number` before its first visit."""
        part = self.data.partition.parts[number]
        return Client(
            id=number,
            n_samples=len(part.train),
            labels=self.federation.labels[number],
            initial=self.initial,
            layout=self.network.layout,
            training=self.training,
            seed=self.description.run.seed.train,
            task=self.task(number, _BEFORE_THE_FIRST_VISIT, 0),
        )

    def task(self, client: int, visit: int, round: int) -> Task:
        """A client's problem for one visit."""
        part, seed = self.data.partition.parts[client], self.description.run.seed.train
        return Task(self.network, self._x, self._y, part, self.training, seed, client, visit, round)

    def round(self, number: int) -> Round:
        """Round `number` (from 0) with the cohort that is drawn for it."""
        rng = stream(self.federation.seed, "sampler", "server", number)
        drawn = getattr(self.schedule, "drawn", None)
        cohort = drawn(self.federation.sizes, rng) if drawn else tuple(self.federation.clients)
        return Round(number, cohort, self.federation, self.training.step_size_at(number))

    def participants(self, all: Tensors, round: Round) -> Sequence[int]:
        """Who works in a round, ascending: the cohort, unless the method chooses."""
        if hasattr(self.method, "participants"):
            return sorted(self.method.participants(all, round, round.cohort))
        return round.cohort

    def measures(self, all: Tensors, round: Round) -> dict[str, Any]:
        """What the method wants recorded of the server's state: numbers, and packed arrays."""
        measured = self.method.measures(all, round) if hasattr(self.method, "measures") else {}
        arrays = {name: np.asarray(value) for name, value in measured.items()}
        return {name: packed(array) if array.ndim else array.item() for name, array in arrays.items()}

    def work_ns(self, actor: str, work: Work, visit: int) -> int:
        """Simulated nanoseconds that `work` takes on the device of `actor` during its visit number `visit`."""
        passes = work.forward_samples + BACKWARD_PER_FORWARD * work.backward_samples
        return self.devices.work_ns(actor, passes * self.network.forward_flops, visit)

    def server_work_ns(self, answers: Sequence[Answer]) -> int:
        """Simulated nanoseconds that folding in `answers` takes: a multiplication and an addition per number."""
        if hasattr(self.method, "server_work"):
            flops = self.method.server_work(self.federation, answers)
        else:
            flops = sum(2.0 * tensor.numel() for answer in answers for tensor in answer.up.values())
        return self.devices.seconds_ns("server", flops)

    def identity(self) -> dict[str, str]:
        """What must be equal in all processes of a run for the same bits."""
        return {
            "partition": self._partition_digest,
            "torch": torch.__version__,
            "capability": torch.backends.cpu.get_cpu_capability(),
        }

    def warm_up(self) -> None:
        """Do once, before the first fork, what every process would otherwise pay for by itself."""
        task = self.task(0, 0, 0)
        model = task.sgd(self.initial, steps=1)
        task.evaluate(model)

    def plan(self) -> dict[str, Any]:
        """What is going to run, as plain values."""
        run, report = self.description.run, self.data.report
        return {
            "facts": {
                "algorithm": self.method_name,
                "dataset": self.data.name,
                "model": self.description.model.name,
                "clients": run.clients,
                "seed": run.seed.model_dump(),
                "mode": self.description.time.mode,
                "partition": {"report": str(report), "digest": self._partition_digest},
                "parameters": self.network.layout.dimension,
            },
            "cohort": self.schedule.size(run.clients),
            "down_bytes": _bytes(self.method.server_down(self._server_state(), 0, self.round(0))),
            "warnings": self.warnings,
            "effective": effective(self.description) | {"versions": _versions()},
        }

    def _server_state(self) -> Tensors:
        state: Tensors = self.method.server_init(self.federation)
        return state

    def _check_names(self) -> None:
        if self.description.algorithm.name == "server":
            raise DescriptionError(f"{self.description.algorithm.at}.name", "server", "is not a method")

    def _check_cohort(self) -> None:
        """Warn of a cohort that is larger than the federation; refuse one that cannot be drawn by samples."""
        clients, able = len(self.names), int(np.count_nonzero(self.federation.sizes))
        cohort = getattr(self.schedule, "cohort", None)
        if cohort is not None and cohort > clients:
            self.warnings.append(f"schedule.cohort = {cohort}: there are {clients} clients, all of whom work")
        if getattr(self.schedule, "sampler", "") == "by-samples" and self.schedule.size(clients) > able:
            reason = f"draws {self.schedule.size(clients)} clients, of whom only {able} have samples: a smaller cohort"
            raise DescriptionError("schedule.sampler", "by-samples", reason)

    def dispatch_rng(self, dispatched: int) -> np.random.Generator:
        """Decides who gets work when a schedule without rounds hands out the next piece."""
        return stream(self.federation.seed, "dispatch", dispatched)

    def _schedule(self) -> Schedule:
        table = self.description.schedule
        if ":" in table.kind:
            known = ", ".join(catalogue.names("schedules"))
            raise DescriptionError("schedule.kind", table.kind, f"must be one of {known}: servers know no others")
        found = catalogue.find("schedules", table.kind, "schedule.kind")
        settings = catalogue.validated(found, table.settings, "schedule")
        schedule: Schedule = catalogue.made(found, "schedule.kind", table.kind, object, **settings)
        schedule.check(len(self.names), self.method)
        return schedule

    def _method(self, table: Algorithm) -> Any:
        found = catalogue.find("algorithms", table.name, "algorithm.name")
        missing = [name for name in REQUIRED if not hasattr(found, name)]
        if missing:
            expected = f"has no {', '.join(missing)}; pflsim/method.py tells what a method must have"
            raise DescriptionError("algorithm.name", table.name, expected)
        settings = catalogue.validated(found, table.settings, "algorithm")
        return catalogue.made(found, "algorithm.name", table.name, object, **settings)

    def _checked(self, method: Any) -> list[str]:
        return list(method.check(self.federation)) if hasattr(method, "check") else []

    def _federation(self) -> Federation:
        parts, y = self.data.partition.parts, self.data.y
        labels = tuple(tuple(np.unique(y[part.train]).tolist()) for part in parts)
        sizes = np.array([len(part.train) for part in parts])
        return Federation(
            clients=range(len(parts)),
            sizes=sizes,
            labels=labels,
            graph=self._graph(labels, sizes),
            initial=self.initial,
            layout=self.network.layout,
            training=self.training,
            seed=self.description.run.seed.train,
        )

    def _evaluated(self) -> list[int]:
        """The samples of each client's smallest part that is evaluated and not empty; 0 where all are."""
        parts = [[len(getattr(part, split)) for split in self.evaluated_splits] for part in self.data.partition.parts]
        return [min((size for size in sizes if size), default=0) for sizes in parts]

    def _main_labels(self) -> list[int] | None:
        """The most frequent training label of each client (the least of equal ones); None where there are none."""
        if not self.data.classes:
            return None
        return [int(np.bincount(self.data.y[part.train], minlength=1).argmax()) for part in self.data.partition.parts]

    def _graph(self, labels: tuple[tuple[int, ...], ...], sizes: np.ndarray) -> np.ndarray | None:
        table = self.description.topology
        if table is None:
            return None
        found = catalogue.find("topologies", table.name, "topology.name")
        settings = catalogue.validated(found, table.settings, "topology")
        rng = stream(self.description.run.seed.data, "topology")
        given = (labels, sizes, rng)
        graph: np.ndarray = catalogue.made(found, "topology.name", table.name, np.ndarray, *given, **settings)
        self.warnings += topology.checked(graph, len(labels))
        return graph


@contextmanager
def reported_at(at: str) -> Iterator[None]:
    """Let errors about `algorithm` name the key `at`, where the description has that method."""
    try:
        yield
    except DescriptionError as problem:
        if problem.key.split(".")[0] != "algorithm":
            raise
        key = at + problem.key.removeprefix("algorithm")
        raise DescriptionError(key, problem.value, problem.expected) from problem


def _bytes(tensors: Tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
