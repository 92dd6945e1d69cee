"""Everything that a run description stands for, built: data, network, method, federation, schedule, time.

A host builds it once; every process that it forks finds it in memory. Nothing here starts a process or a clock.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, cast

import numpy as np
import torch

from pflsim import catalogue, outside
from pflsim.appointments import Appointments
from pflsim.coding.direction import Direction
from pflsim.coding.settings import Codecs, fitted, load, remarks, require_references
from pflsim.cohorts import Cohorts, predicted_visit_s
from pflsim.data.loading import Data
from pflsim.data.loading import load as load_data
from pflsim.effective import effective
from pflsim.errors import DescriptionError, few
from pflsim.federation import Answer, Client, Federation, Round, Tensors
from pflsim.learning.model import load as load_model
from pflsim.learning.model import require_batches
from pflsim.learning.task import Split, Task, Work
from pflsim.learning.vector import Network, unchanged
from pflsim.messages.wire import COORDINATOR, SERVER
from pflsim.method import is_for_peers, misfits, missing
from pflsim.own_method import guarded
from pflsim.record.database import packed
from pflsim.rng import stream
from pflsim.sampling import Population
from pflsim.schedule import Schedule, WithoutRounds, WithoutServer
from pflsim.schedules.asynchronous import Asynchronous
from pflsim.schedules.deadline import Deadline
from pflsim.schedules.epidemic import Epidemic
from pflsim.schedules.neighbours import Neighbours
from pflsim.schedules.pairs import Pairs
from pflsim.schedules.push import Push
from pflsim.schedules.sync import Sync
from pflsim.spec import Algorithm, Description, client_names
from pflsim.timing.availability import Availability
from pflsim.timing.clock import NANOSECONDS
from pflsim.timing.devices import Devices
from pflsim.timing.faults import Fault, Faults
from pflsim.timing.links import Links
from pflsim.timing.presence import Presence
from pflsim.topology import Topology

BACKWARD_PER_FORWARD = 2.0
"""A backward pass multiplies by each weight matrix twice, a forward pass once."""

_BEFORE_THE_FIRST_VISIT = -1
_PEER_SCHEDULES = ("sync", "neighbours", "asynchronous", "pairs", "push", "epidemic")
_PACKAGES = ("pflsim", "torch", "numpy", "pyzmq", "msgpack", "scikit-learn", "networkx", "zstandard")
_SCHEDULES = (Sync, Deadline, WithoutRounds, Neighbours, Epidemic, Asynchronous, Push, Pairs)
"""What a schedule must be a form of: processes know how to make a round of each."""
_PUBLIC_SHARE = 0.1


class Study:
    """What a description describes. Raises DescriptionError for what cannot work."""

    def __init__(self, description: Description, run_id: bytes) -> None:
        self.description, self.run_id = description, run_id
        self.names = client_names(description.run.clients)
        self.number_of = {name: number for number, name in enumerate(self.names)}
        self._check_names()
        self.warnings: list[str] = []
        with reported_at(description.algorithm.at):
            self.method, self.method_name = self._method(description.algorithm), description.algorithm.title
        self.is_for_peers = is_for_peers(self.method)
        self.hub = COORDINATOR if self.is_for_peers else SERVER
        self.schedule = self._schedule()
        self.training = description.training
        self.data: Data = load_data(self._data_table(), description.run.seed.data, len(self.names))
        self.networks = self._networks()
        self._x, self._y = torch.from_numpy(self.data.x), torch.from_numpy(self.data.y)
        self._public = self._x[torch.from_numpy(self.data.public)] if len(self.data.public) else None
        init = description.run.seed.init
        self._initials = [network.initial(stream(init, "init")) for network in self.networks]
        self.initial = self._initials[0]
        self.federation = self._federation()
        # here, so that no process works it out again, and methods that pool the data can be paired with others
        self._partition_digest = self.data.partition.digest
        if getattr(self.method, "pools", False):
            self._pool()
        self._check_cohort()
        sizes = [len(part.train) for part in self.data.partition.parts]
        for network in self.networks:
            require_batches(network, self.training, self.names, sizes, self._evaluated())
        self.devices = Devices(
            description.devices,
            self.names,
            description.run.seed.train,
            sizes=self.federation.sizes.tolist(),
            labels=self._main_labels(),
        )
        seed = description.run.seed.train
        self.links = Links(description.links, (SERVER, *self.names), seed, aside=(COORDINATOR,))
        actors = self.names if self.is_for_peers else (SERVER, *self.names)
        self.faults = Faults(description.fault, actors, description.run.seed.train)
        self.presence = Presence(
            Availability(description.availability, self.names, description.run.seed.train), self.faults
        )
        self._check_losses()
        self._check_presence()
        if self.devices.power and not description.record.spans:
            raise DescriptionError("record.spans", False, "must be true where devices.power is to be told as energy")
        with reported_at(description.algorithm.at):
            self.warnings += self._checked(self.method)
        self.codecs = self._codecs()
        if self.is_for_peers:
            self._prepare_peers()
        self.cohorts = Cohorts(self.schedule, self._population(), description.run.seed.train)
        if self.cohorts.needs_losses or self.cohorts.asked_first(0, self.federation.clients) is not None:
            _received_model(self._first_down(), self.network.layout.dimension)

    def require(self, table: Algorithm) -> None:
        """Raises DescriptionError if the method of `table` could not run in the place of this study's own."""
        with reported_at(table.at):
            method = self._method(table)
            self._checked(method)
        load(self.description.codec, is_for_peers=is_for_peers(method), method=table.name)

    @property
    def rounds(self) -> int:
        """How many rounds the run has at most."""
        run = self.description.run
        return min(run.rounds, run.stop.rounds or run.rounds)

    @property
    def evaluated_splits(self) -> tuple[Split, ...]:
        """On which parts of a client's data its models are evaluated."""
        return ("test", "validation") if self.description.data.settings.get("validation") else ("test",)

    def is_evaluated(self, done: int, since_ns: int, now_ns: int) -> bool:
        """Whether there is an evaluation when `done` rounds are done; after the last there is, unless never.

        With `run.eval_every_s`: if one of its multiples lies after `since_ns`, when the round before ended, and not
        after `now_ns`. The server has a model to evaluate only between rounds, so that a multiple inside of a round
        is evaluated at the round's end, and that time is recorded; several in one round are one evaluation.
        """
        run = self.description.run
        if run.eval_every_s is not None:
            grid_ns = round(run.eval_every_s * NANOSECONDS)
            return now_ns // grid_ns > since_ns // grid_ns or done == self.rounds
        return bool(run.eval_every) and (done % run.eval_every == 0 or done == self.rounds)

    def client(self, number: int) -> Client:
        """Client `number` before its first visit."""
        part = self.data.partition.parts[number]
        return Client(
            id=number,
            n_samples=len(part.train),
            labels=self.federation.labels[number],
            initial=self._initials[number % len(self.networks)],
            layout=self.network_of(number).layout,
            training=self.training,
            seed=self.description.run.seed.train,
            task=self.task(number, _BEFORE_THE_FIRST_VISIT, 0),
        )

    def task(self, client: int, visit: int, round: int) -> Task:
        """A client's problem for one visit."""
        part, seed = self.data.partition.parts[client], self.description.run.seed.train
        data = (self._x, self._y, part, self.training, seed)
        return Task(self.network_of(client), *data, client, visit, round, public=self._public)

    @property
    def network(self) -> Network:
        """The model that the description names first; in most runs there is no other."""
        return self.networks[0]

    def network_of(self, client: int) -> Network:
        """The model of a client: clients take the models of the description in turn."""
        return self.networks[client % len(self.networks)]

    def round(
        self, number: int, *, candidates: Sequence[int] | None = None, losses: Mapping[int, float] | None = None
    ) -> Round:
        """Round `number` (from 0) with the cohort that is drawn for it.

        `candidates` are the ids, ascending, that may be drawn now (all, where there are none given); `losses` are
        the training losses that clients reported last, by id.
        """
        cohort = self.cohorts.drawn(number, candidates, losses)
        return Round(number, cohort, self.federation, self.training.step_size_at(number))

    def piece_of_work(
        self, client: int, visit: int, attempt: int, round: int, down: Tensors, within_ns: int | None = None
    ) -> tuple[Task, Work, int]:
        """What `client` has to do in a round, given `down`: its task, the work in it, and how long that takes.

        Work that shall end within some time is cut to the steps that are done by then, maybe none. `attempt` counts
        what the client was given to do: visits, and those that came to nothing.
        """
        task = self.task(client, visit, round)
        if self.training.local_s is not None:
            task = self._within(task, down, attempt, self.training.local_s * 1e9, least=1)
        if within_ns is not None:
            task = self._within(task, down, attempt, within_ns)
            if not task.steps and task.n_samples:
                return task, Work(), max(0, within_ns)
        return task, *self._declared(task, down, attempt)

    def _within(self, task: Task, down: Tensors, attempt: int, most_ns: float, least: int = 0) -> Task:
        """The task, cut to as many steps as are done in so many simulated nanoseconds, `least` at least."""
        if self._declared(task, down, attempt)[1] <= most_ns:
            return task
        done, tried = 0, max(1, task.steps)
        while self._declared(replace(task, limit=tried), down, attempt)[1] <= most_ns:  # a method may take more steps
            done, tried = tried, 2 * tried
        while tried - done > 1:  # `done` steps are done by then, `tried` are not
            middle = (done + tried) // 2
            fits = self._declared(replace(task, limit=middle), down, attempt)[1] <= most_ns
            done, tried = (middle, tried) if fits else (done, middle)
        return replace(task, limit=max(least, done))

    def _declared(self, task: Task, down: Tensors, attempt: int) -> tuple[Work, int]:
        """The work that the method does in a visit, and its simulated nanoseconds."""
        work = self.method.client_work(task, down) + self.reporting_work(task)
        return work, self.work_ns(self.names[task.client], work, attempt)

    def deadline_ns(self, asked: Sequence[int]) -> int:
        """How long a round lasts at most in which these clients are asked, where the schedule has a deadline."""
        if not isinstance(self.schedule, Deadline):
            return 0
        rates = self.links.uplink_rate("server"), self.links.downlink_rate("server")
        shared_s = sum(len(asked) * self._down_bytes / rate for rate in rates) / 1e9  # all at once, at the server
        return self.schedule.deadline_ns((self.cohorts.population.visit_s[list(asked)] + shared_s).tolist())

    @property
    def cancels(self) -> bool:
        """Whether a client's work may be cancelled."""
        partial = getattr(self.schedule, "late", None) == "partial"
        return self.schedule.gives_up or (partial and not self.presence.is_certain)

    def reporting_work(self, task: Task) -> Work:
        """What `reported` costs a client: a forward pass over its training samples, if anything is reported."""
        return Work(task.n_samples, 0) if self.cohorts.needs_losses else Work()

    def reported(self, task: Task, down: Tensors) -> dict[str, float]:
        """What a client that has received `down` reports beside its answer, as facts."""
        return self.loss(task, down) if self.cohorts.needs_losses else {}

    def loss(self, task: Task, down: Tensors) -> dict[str, float]:
        """A client's mean training loss at the model among what it has received, as facts."""
        return {"loss": task.loss(_received_model(down, self.network.layout.dimension), "train")}

    def loss_ns(self, task: Task, attempt: int) -> int:
        """Simulated nanoseconds that it takes a client to find that loss: a forward pass over its training samples."""
        return self.work_ns(self.names[task.client], Work(task.n_samples, 0), attempt)

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

    def folded(self, all: Tensors, answers: Sequence[Answer], round: Round, version: int) -> Tensors:
        """The server's state after folding in answers, as the schedule has it; `version` were made before."""
        came = [tensor for answer in answers for tensor in (*answer.up.values(), *answer.down.values())]
        with unchanged(f"the server's half of {self.method_name}", [*all.values(), *came, self.initial]):
            if isinstance(self.schedule, WithoutRounds):
                return self.schedule.fold(self.method, all, answers, round, version)
            changed: Tensors = self.method.server_step(all, answers, round)
            return changed

    def work_ns(self, actor: str, work: Work, attempt: int) -> int:
        """Simulated nanoseconds that `work` takes on the device of `actor`, as the so-manieth that it is given."""
        return self.devices.work_ns(actor, self._flops(work, self.number_of[actor]), attempt)

    def _flops(self, work: Work, client: int) -> float:
        passes = work.forward_samples + BACKWARD_PER_FORWARD * work.backward_samples
        return passes * self.network_of(client).forward_flops

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
        run, report, topology = self.description.run, self.data.report, self.federation.topology
        graph = {"graph": topology.facts()} if self.is_for_peers and topology is not None else {}
        return {
            "facts": {
                "algorithm": self.method_name,
                "dataset": self.data.name,
                "model": self.description.model.title,
                "clients": run.clients,
                "seed": run.seed.model_dump(),
                "mode": self.description.time.mode,
                "partition": {"report": str(report), "digest": self._partition_digest},
                "parameters": self.network.layout.dimension,
                **graph,
            },
            "hub": self.hub,
            "watts": {actor: list(astuple(power)) for actor, power in self.devices.power.items()},
            "cohort": self.schedule.size(run.clients),
            "down_bytes": sum(self.frame_bytes("down", self._first_down())),
            "warnings": self.warnings,
            "effective": effective(self.description) | {"versions": versions()},
            "own_files": {str(path): list(map(str, sources)) for path, sources in outside.files().items()},
        }

    def frame_bytes(self, direction: Literal["up", "down", "peer"], tensors: Tensors) -> list[int]:
        """The lengths of the frames of a message, encoded as that direction's are; before zstd, which has no formula.

        A first message that is to be a difference to the one before is longer: it travels as it is.
        """
        coded: Direction | None = getattr(self.codecs, direction)
        if coded is None:
            return [_bytes({name: tensor}) for name, tensor in tensors.items()]
        return coded.frame_bytes(tensors)

    def first_up(self, client: int = 0) -> Tensors:
        """What `client` would send up first; it takes one local step, as only names, types and sizes are wanted."""
        one_step = replace(self.training, local_steps=1, local_epochs=None, local_s=None)
        task = replace(self.task(client, 0, 0), training=one_step)
        up: Tensors = self.method.client_step(self.method.client_init(self.client(client)), self._first_down(), task)[1]
        return up

    def _codecs(self) -> Codecs:
        """How messages travel, fitted to what they hold. Raises DescriptionError for what cannot work."""
        codecs = load(self.description.codec, is_for_peers=self.is_for_peers, method=self.method_name)
        if not codecs:
            return codecs
        forgets = any(not fault.keeps_state for fault in self.faults.faults)
        require_references(codecs, forgets=forgets, loses=self._can_lose() is not None)
        self.warnings += remarks(codecs)
        first = {"up": self.first_up, "down": self._first_down, "peer": self.first_shown}
        return fitted(codecs, first, [network.layout.shapes for network in self.networks])

    def first_models(self, client: int = 0) -> list[str]:
        """The names of the models that are evaluated at `client`, headline first."""
        you = self.method.client_init(self.client(client))
        return list(self.method.client_model(you, self._first_down(), self.task(client, 0, 0)))

    def first_shown(self, peer: int = 0) -> Tensors:
        """What `peer` would show first."""
        shown: Tensors = self.method.peer_shows(self.method.client_init(self.client(peer)))
        return shown

    def _server_state(self) -> Tensors:
        state: Tensors = self.method.server_init(self.federation)
        return state

    @property
    def promises(self) -> bool:
        """Whether clients tell, when they start to work, before when they will not answer."""
        return self.schedule.promises or not self.presence.is_certain or bool(self.faults)

    def _data_table(self) -> dict[str, Any]:
        """The description's `[data]`, with public data where the method needs them and nothing is said of them."""
        table = self.description.data.model_dump()
        if not getattr(self.method, "needs_public", False) or table.get("public_share") is not None:
            return table
        told = (
            f"data.public_share is {_PUBLIC_SHARE}, as {self.method_name} needs public data; say so in the description"
        )
        self.warnings.append(f"{told} if other methods run beside it, or they train on more")
        return table | {"public_share": _PUBLIC_SHARE}

    def _networks(self) -> list[Network]:
        """The models that clients take in turn: the description's, and what it has as `model.others`."""
        table, init = self.description.model.model_dump(), self.description.run.seed.init
        others = table.pop("others", [])
        if not isinstance(others, list) or not all(isinstance(other, Mapping) for other in others):
            raise DescriptionError("model.others", others, 'must be a list of tables such as { name = "mlr" }')
        shape, classes = self.data.shape, getattr(self.method, "features", 0) or self.data.classes
        return [load_model(one, shape, classes, stream(init, "model")) for one in (table, *others)]

    def _pool(self) -> None:
        """Move all training data to client 0; the federation stays what it was before the data left."""
        self.warnings.append("data leaves the clients: all training data lie at the first of them")
        partition = self.data.partition.pooled()
        self.data = replace(self.data, partition=partition, report=partition.report(self.data.y))

    def _check_losses(self) -> None:
        """A message that never arrives must not be waited for without end."""
        fault, kind = self._can_lose(), self.description.schedule.kind
        if fault is not None and not self.schedule.gives_up:
            key = f"fault.{fault.number}.kind"
            expected = f"with schedule.kind = {kind!r} {self.schedule.mend} (the first [[fault]] is fault.0)"
            raise DescriptionError(key, fault.kind, expected)
        crash = self.faults.never_returns
        goes_on = self.schedule.gives_up or isinstance(self.schedule, Deadline)
        if crash is not None and (self.is_for_peers or not goes_on):
            expected = f"is required with schedule.kind = {kind!r}, as {few(sorted(crash.clients))} would never answer"
            raise DescriptionError(f"fault.{crash.number}.until_s", None, f"{expected}: {self.schedule.mend}")

    def _check_presence(self) -> None:
        """Refuse to wait for those who will never be there."""
        away = [name for name in self.names if self.presence.back_ns(name, 0) is None]
        there, needed = len(self.names) - len(away), getattr(self.schedule, "minimum", 1)
        key, given = "availability", self.description.availability
        if self.is_for_peers and away:
            raise DescriptionError(key, given, f"{few(away)} would never be there, and neighbours wait in vain")
        if not there:
            raise DescriptionError(key, given, "no client would ever be there: look at its stretches, and at crashes")
        if needed > there:
            expected = f"must be at most {there}, as {few(away)} will never be there"
            raise DescriptionError("schedule.minimum", needed, expected)

    def _can_lose(self) -> Fault | None:
        """A fault for which a message may never arrive that somebody sends."""
        return self.faults.can_lose(self._pairs(), sent_when_cut=not self.is_for_peers)

    def _pairs(self) -> list[tuple[str, str]]:
        """Who may send something to whom, each pair once."""
        if self.is_for_peers and (topology := self.federation.topology) is not None:
            linked = [(number, other) for number in range(len(self.names)) for other in topology.linked(number)]
            return [(self.names[number], self.names[other]) for number, other in linked]
        return [(SERVER, name) for name in self.names]

    def _check_names(self) -> None:
        if self.description.algorithm.name in (SERVER, COORDINATOR):
            name = self.description.algorithm.name
            raise DescriptionError(f"{self.description.algorithm.at}.name", name, "is not a method")

    def _check_cohort(self) -> None:
        """Warn of a cohort that is larger than the federation; refuse one that cannot be drawn by samples."""
        clients, able = len(self.names), int(np.count_nonzero(self.federation.sizes))
        cohort = getattr(self.schedule, "cohort", None)
        if cohort is not None and cohort > clients:
            self.warnings.append(f"schedule.cohort = {cohort}: there are {clients} clients, all of whom work")
        sampling = getattr(self.schedule, "sampling", "")
        if sampling in ("by-samples", {"kind": "by-samples"}) and self.schedule.size(clients) > able:
            reason = f"draws {self.schedule.size(clients)} clients, of whom only {able} have samples: a smaller cohort"
            raise DescriptionError("schedule.sampling", sampling, reason)

    def dispatch_rng(self, dispatched: int) -> np.random.Generator:
        """Decides who gets work when a schedule without rounds hands out the next piece."""
        return stream(self.federation.seed, "dispatch", dispatched)

    def _schedule(self) -> Schedule:
        table = self.description.schedule
        found = catalogue.find("schedules", table.kind, "schedule.kind")
        settings = catalogue.validated(found, table.settings, "schedule")
        schedule: Schedule = catalogue.made(found, "schedule.kind", table.kind, _SCHEDULES, **settings)
        self._require_suited(table.kind, schedule)
        self.warnings += schedule.check(len(self.names), self.method)
        if self.is_for_peers and table.kind == "sync":
            return cast(Schedule, Neighbours())  # what it is among peers
        return schedule

    def _require_suited(self, kind: str, schedule: Schedule) -> None:
        """Refuse a schedule that needs a server where there is none, or none where there is one."""
        if self.is_for_peers:
            if kind != "sync" and not isinstance(schedule, WithoutServer):
                known = ", ".join(_PEER_SCHEDULES)
                raise DescriptionError(
                    "schedule.kind", kind, f"needs a server, and {self.method_name} has none: {known}"
                )
            if kind == "sync" and schedule.size(len(self.names)) < len(self.names):
                expected = 'among peers nobody draws a cohort: use kind = "neighbours" with active, a share'
                raise DescriptionError("schedule.cohort", schedule.size(len(self.names)), expected)
        elif isinstance(schedule, WithoutServer):
            reason = f"is for methods without a server, such as dfedu and dpsgd; {self.method_name} has one"
            raise DescriptionError("schedule.kind", kind, reason)

    def _population(self) -> Population:
        """What a sampling may know of the clients."""
        parts, y, counts = self.data.partition.parts, self.data.y, None
        if self.data.classes:
            counts = np.array([np.bincount(y[part.train], minlength=self.data.classes) for part in parts])
        down = self._first_down()
        self._down_bytes = sum(self.frame_bytes("down", down))
        works = [self.method.client_work(self.task(client, 0, 0), down) for client in self.federation.clients]
        flops = [self._flops(work, client) for client, work in enumerate(works)]
        if self.training.local_s is not None:
            speeds = [self.devices.device(name).flops_per_second for name in self.names]
            flops = [min(work, speed * self.training.local_s) for work, speed in zip(flops, speeds, strict=True)]
        visit_s = predicted_visit_s(self.names, flops, self._down_bytes, self.devices, self.links)
        return Population(self.federation.sizes, counts, visit_s)

    def _first_down(self) -> Tensors:
        """What the first client would be sent first; nothing where there is no server."""
        if self.is_for_peers:
            return {}
        first = Round(0, (0,), self.federation, self.training.step_size_at(0))
        down: Tensors = self.method.server_down(self._server_state(), 0, first)
        return down

    def _method(self, table: Algorithm) -> Any:
        found = catalogue.find("algorithms", table.name, "algorithm.name")
        if lacks := missing(found):
            expected = f"has no {', '.join(lacks)}; pflsim/method.py tells what a method must have"
            raise DescriptionError("algorithm.name", table.name, expected)
        if wrong := misfits(found):
            raise DescriptionError("algorithm.name", table.name, f"{'; '.join(wrong)}: see pflsim/method.py")
        settings = catalogue.validated(found, table.settings, "algorithm")
        if ":" in table.name and isinstance(found, type):
            found = guarded(found, table.title)
        return catalogue.made(found, "algorithm.name", table.name, object, **settings)

    def linked(self, number: int) -> tuple[int, ...]:
        """The peers with which peer `number` may ever exchange a model, ascending."""
        return self.appointments.linked(number)

    def models_sent(self, number: int, round: int) -> int:
        """How many models peer `number` sends in a round; in pairs its own, and an answer on average."""
        if isinstance(self.schedule, Asynchronous):
            return len(self.appointments.neighbours(number, round))
        if isinstance(self.schedule, Push):
            return len(self.appointments.partners(number, round, self.schedule.receivers))
        if isinstance(self.schedule, Pairs):
            return 2 * len(self.appointments.partners(number, round, 1))
        return len(self.appointments.of_round(number, round)[0])

    @property
    def least_latency_ns(self) -> int:
        """The least between two peers that may exchange a model; 0 if there are none."""
        pairs = [(one, other) for one in range(len(self.names)) for other in self.linked(one)]
        return min((self.links.latency_ns(self.names[one], self.names[other]) for one, other in pairs), default=0)

    def mixing_ns(self, name: str, models: int) -> int:
        """Simulated nanoseconds in which peer `name` learns from so many models: two operations per number of each."""
        return self.devices.seconds_ns(name, 2.0 * self.network.layout.dimension * (models + 1))

    def _prepare_peers(self) -> None:
        """Make the appointments of peers; refuse what needs a server."""
        topology, run, schedule = self.federation.topology, self.description.run, self.schedule
        assert topology is not None  # the method's `check` has refused it
        for limit in ("accuracy", "bytes"):
            if (value := getattr(run.stop, limit)) is not None:
                raise DescriptionError(
                    f"run.stop.{limit}", value, "needs a server that sees it; peers know simulated_s"
                )
        assert isinstance(schedule, WithoutServer)
        self.appointments = Appointments(schedule, topology, self.names, run.seed.train, self.faults)

    def _checked(self, method: Any) -> list[str]:
        if len(self.networks) > 1 and not getattr(method, "any_model", False):
            others = self.description.model.settings["others"]
            reason = "the method needs the same model at every client; local and fedmd take different ones"
            raise DescriptionError("model.others", others, reason)
        return list(method.check(self.federation)) if hasattr(method, "check") else []

    def _federation(self) -> Federation:
        parts, y = self.data.partition.parts, self.data.y
        labels = tuple(tuple(np.unique(y[part.train]).tolist()) for part in parts)
        sizes = np.array([len(part.train) for part in parts])
        topology = self._graph(labels, sizes)
        return Federation(
            clients=range(len(parts)),
            sizes=sizes,
            labels=labels,
            graph=None if topology is None else topology.at(0),
            initial=self.initial,
            layout=self.network.layout,
            training=self.training,
            seed=self.description.run.seed.train,
            new_initial=self.network.initial,
            public=len(self.data.public),
            topology=topology,
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

    def _graph(self, labels: tuple[tuple[int, ...], ...], sizes: np.ndarray) -> Topology | None:
        table, seed = self.description.topology, self.description.run.seed.data
        if table is None:
            return None
        given = (table.name, table.settings, labels, sizes, seed)
        topology = Topology(*given, weights=table.weights, rounds=self.rounds)
        self.warnings += topology.warnings
        return topology


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


def _received_model(down: Tensors, dimension: int) -> torch.Tensor:
    """The model [d] among what travels down; DescriptionError where a method sends none."""
    for tensor in down.values():
        if tensor.shape == (dimension,):
            return tensor
    raise DescriptionError("schedule.sampling", "power-of-choice", "needs a method that sends clients a model")


def _bytes(tensors: Tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def versions() -> dict[str, str]:
    """What ran it, as far as the bits depend on it: `torch` is its build, `cpu_capability` the instructions it uses."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found | {"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
