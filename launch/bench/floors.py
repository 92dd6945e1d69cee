"""The floors: the same rounds on the same batches without a simulator, in a fresh process each.

    plain    what a researcher would write first: nn.Module and optim.SGD, one process, one thread
    shared   the least that could do: two processes, shared memory, flat buffers, hand-derived gradients, no messages

Both give the model that a run gives, up to rounding: a test compares them.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context

import torch
from torch import Tensor, nn
from torch.nn import functional

from launch.bench.transport import FACTOR
from launch.bench.workloads import PLAIN, SHARED, workloads
from pflsim import catalogue
from pflsim.rng import stream
from pflsim.spec import validate
from pflsim.study import Study

Times = list[float]
Work = Callable[[int, Tensor, Tensor, int], None]
"""(half, model, sums [2, d], round): one process's share of a round."""


class Lesson:
    """What both floors and the run have in common: data, cohorts, batches, and the starting vector."""

    def __init__(self, study: Study) -> None:
        self.study, training = study, study.training
        self.x, self.y = torch.from_numpy(study.data.x), torch.from_numpy(study.data.y)
        self.batch, self.steps, self.step_size = training.batch, training.local_steps or 0, training.step_size
        self._visits = [0] * len(study.names)

    def begin(self, round: int) -> tuple[int, ...]:
        """The clients of the next round, each of which begins one more visit."""
        cohort = self.study.round(round).cohort
        for client in cohort:
            self._visits[client] += 1
        return cohort

    def samples(self, client: int) -> int:
        """n_i."""
        return len(self.study.data.partition.parts[client].train)

    def batches(self, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the client's present visit: shuffled passes over its samples."""
        train = self.study.data.partition.parts[client].train
        rng = stream(self.study.description.run.seed.train, "batch", client, self._visits[client] - 1)
        rows: list[Tensor] = []
        for _ in range(math.ceil(self.steps / math.ceil(len(train) / self.batch))):
            rows += torch.split(torch.from_numpy(rng.permutation(train)), self.batch)
        for chosen in rows[: self.steps]:
            yield self.x[chosen], self.y[chosen]


def plain(study: Study) -> tuple[Tensor, Times]:
    """The loop of a first script; the final vector [d] and when each round ended."""
    lesson, table = Lesson(study), study.description.model
    make = catalogue.find("models", table.name, "model.name")
    model: nn.Module = make(study.data.shape, study.data.classes, **table.settings)
    nn.utils.vector_to_parameters(study.initial, model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=lesson.step_size)
    everybody = {name: value.clone() for name, value in model.state_dict().items()}
    times = []
    for round in range(study.rounds):
        total, samples = {name: torch.zeros_like(value) for name, value in everybody.items()}, 0
        for client in lesson.begin(round):
            model.load_state_dict(everybody)
            for x, y in lesson.batches(client):
                optimizer.zero_grad(set_to_none=True)
                functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            for name, value in model.state_dict().items():
                total[name].add_(value, alpha=lesson.samples(client))
            samples += lesson.samples(client)
        everybody = {name: value / samples for name, value in total.items()}
        times.append(time.perf_counter())
    return torch.cat([value.flatten() for value in everybody.values()]), times


def shared(study: Study) -> tuple[Tensor, Times]:
    """Two processes over shared flat buffers; the final vector [d] and when each round ended."""
    lesson = Lesson(study)

    def work(half: int, model: Tensor, sums: Tensor, round: int) -> None:
        cohort = lesson.begin(round)
        total, scale = sums[half].zero_(), sum(map(lesson.samples, cohort))
        for client in cohort[half::2]:
            own = study.network.descend(model, lesson.batches(client), lesson.step_size)
            total.add_(own, alpha=lesson.samples(client) / scale)

    return _in_two_processes(study, work)


def plain_transport(study: Study) -> tuple[Tensor, Times]:
    """`plain` for vectors that are only moved: every client copies the model, steps, and is averaged."""
    model, times = study.initial.clone(), []
    for round in range(study.rounds):
        cohort = study.round(round).cohort
        total = torch.zeros_like(model)
        for _ in cohort:
            total.add_(model.clone().mul_(FACTOR))
        model = total / len(cohort)
        times.append(time.perf_counter())
    return model, times


def shared_transport(study: Study) -> tuple[Tensor, Times]:
    """`shared` for vectors that are only moved: a copy to the client, the step, a copy back, and their average."""
    own, cohort = torch.empty_like(study.initial), study.round(0).cohort
    slots = torch.zeros(len(cohort), len(own))
    slots.share_memory_()  # type: ignore[no-untyped-call]

    def work(half: int, model: Tensor, sums: Tensor, round: int) -> None:
        total = sums[half].zero_()
        for slot in slots[half::2]:
            slot.copy_(own.copy_(model).mul_(FACTOR))
            total.add_(slot, alpha=1 / len(cohort))

    return _in_two_processes(study, work)


def _in_two_processes(study: Study, work: Work) -> tuple[Tensor, Times]:
    """Let each process do its half of every round's clients, and then add up its half of the vector."""
    model, sums = study.initial.clone(), torch.zeros(2, len(study.initial))
    for tensor in (model, sums):
        tensor.share_memory_()  # type: ignore[no-untyped-call]
    forked = get_context("fork")
    barrier = forked.Barrier(2)
    parts = [slice(0, len(model) // 2), slice(len(model) // 2, None)]
    times = []

    def rounds(half: int) -> None:
        for round in range(study.rounds):
            work(half, model, sums, round)
            barrier.wait()
            torch.add(sums[0, parts[half]], sums[1, parts[half]], out=model[parts[half]])
            barrier.wait()
            times.append(time.perf_counter())

    other = forked.Process(target=rounds, args=(1,))
    other.start()
    rounds(0)
    other.join()
    return model, times


FLOORS = {
    PLAIN: {"W1": plain, "W2": plain, "W3": plain_transport, "W4": plain},
    SHARED: {"W1": shared, "W2": shared, "W3": shared_transport, "W4": shared},
}


def main() -> None:
    """`python -m launch.bench.floors plain|shared WORKLOAD [--quick]` prints {"rounds_per_s": ...}."""
    floor, name = sys.argv[1:3]
    torch.set_num_threads(1)
    study = Study(validate(workloads("--quick" in sys.argv)[name].tables), os.urandom(8))
    study.warm_up()
    _, times = FLOORS[floor][name](study)
    print(json.dumps({"rounds_per_s": (len(times) - 1) / (times[-1] - times[0])}))


if __name__ == "__main__":
    main()
