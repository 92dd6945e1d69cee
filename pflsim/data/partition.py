"""Labels become clients: what a partition is given (`Pool`) and what it makes (`Part`, `Partition`).

A file of the room `partitions` is one function `(pool, clients, rng, *, settings)`. It returns, per client,
either the indices of its samples, or `Part`s where the partition itself decides what is training and what is
test; both may be wrapped in a `Draw` that tells more. What is the same for all of them (the split into
training and test part inside each client, the down-sampling of some clients, the validation part) is in
`pflsim.data.divide`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pflsim.errors import DescriptionError

Indices = npt.NDArray[np.int64]
NONE: Indices = np.empty(0, np.int64)


def require(condition: bool, key: str, value: object, expected: str) -> None:
    """Refuse the run description, by the name of `key`, unless `condition` holds."""
    if not condition:
        raise DescriptionError(key, value, expected)


@dataclass(frozen=True)
class Part:
    """One client's samples, as ascending indices into the rows that `pflsim.data.loading.load` returns."""

    train: Indices
    validation: Indices = field(default_factory=NONE.copy)
    test: Indices = field(default_factory=NONE.copy)

    @property
    def all(self) -> Indices:
        """Every sample that this client holds."""
        return np.concatenate([self.train, self.validation, self.test])


@dataclass(frozen=True)
class Draw:
    """What a partition returns when it has something to tell beside the indices."""

    clients: Sequence[Indices] | Sequence[Part]
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionReport:
    """What a reader must know of a partition to judge a result.

    `overlap` is samples held / distinct samples held (1: disjoint); `coverage` is samples held / samples in
    the pool (above 1: drawn more than once, below 1: some were left out). `leaked` counts test samples that
    another client trains on or selects by.
    """

    clients: int
    train: tuple[int, int, float]  # smallest, largest, mean number of samples of a client
    test: tuple[int, int, float]
    classes: tuple[int, int, float]  # smallest, largest, mean number of classes of a client
    label_sets: tuple[tuple[int, ...], ...]
    overlap: float
    coverage: float
    leaked: int
    without_test: tuple[int, ...]  # clients that are left out of mean accuracies

    def __str__(self) -> str:
        """The report in one line."""
        parts = [
            f"{self.clients} clients",
            "train {}-{} (mean {:.1f})".format(*self.train),
            "test {}-{} (mean {:.1f})".format(*self.test),
            "classes {}-{}".format(*self.classes),
            f"overlap {self.overlap:.2f}",
            f"coverage {self.coverage:.2f}",
        ]
        parts += [f"{self.leaked} test samples are another client's training samples"] * (self.leaked > 0)
        parts += [f"{len(self.without_test)} clients without a test part"] * bool(self.without_test)
        return ", ".join(parts)


@dataclass(frozen=True)
class Partition:
    """Who holds which samples; `notes` is what the partition tells, all of it plain JSON."""

    parts: tuple[Part, ...]
    notes: dict[str, Any] = field(default_factory=dict)

    def pooled(self) -> "Partition":
        """The same with all training data moved to client 0; what is in anybody's test part is not trained on."""
        tested = np.concatenate([part.test for part in self.parts])
        train = np.setdiff1d(np.concatenate([part.train for part in self.parts]), tested)
        selected_by = np.setdiff1d(np.concatenate([part.validation for part in self.parts]), tested)
        parts = [replace(part, train=NONE, validation=NONE) for part in self.parts]
        parts[0] = replace(parts[0], train=train, validation=np.setdiff1d(selected_by, train))
        return Partition(tuple(parts), {**self.notes, "warning": "data leaves the clients"})

    @property
    def digest(self) -> str:
        """The sha256 over all index arrays, in client order."""
        digest = hashlib.sha256()
        for part in self.parts:
            for indices in (part.train, part.validation, part.test):
                digest.update(len(indices).to_bytes(8, "little"))
                digest.update(indices.astype("<i8").tobytes())
        return digest.hexdigest()

    def report(self, labels: npt.NDArray[Any]) -> PartitionReport:
        """Sizes, classes and overlap, given the labels [n] (regression targets are one class)."""
        if labels.dtype.kind == "f":
            labels = np.zeros(len(labels), np.int64)
        sets = tuple(tuple(np.unique(labels[part.all]).tolist()) for part in self.parts)
        held = np.concatenate([part.all for part in self.parts])
        times_used = np.bincount(
            np.concatenate([np.concatenate([part.train, part.validation]) for part in self.parts]),
            minlength=len(labels),
        )
        return PartitionReport(
            clients=len(self.parts),
            train=_spread([len(part.train) for part in self.parts]),
            test=_spread([len(part.test) for part in self.parts]),
            classes=_spread([len(labels_of_one) for labels_of_one in sets]),
            label_sets=sets,
            overlap=len(held) / max(1, len(np.unique(held))),
            coverage=len(held) / len(labels),
            leaked=sum(int(np.count_nonzero(times_used[part.test])) for part in self.parts),
            without_test=tuple(client for client, part in enumerate(self.parts) if not len(part.test)),
        )


def _spread(sizes: list[int]) -> tuple[int, int, float]:
    return min(sizes), max(sizes), sum(sizes) / len(sizes)


@dataclass(frozen=True)
class Downsample:
    """Remove data of some clients: which share of them, and which share of their samples they keep.

    The defaults are "80 % of the data of half of the clients removed" with the test part left whole.
    """

    clients: float = 0.5
    keep: float = 0.2
    test_keep: float = 1.0


@dataclass(frozen=True)
class Pool:
    """The samples that a partition deals out, and the rules for what happens with them afterwards."""

    labels: Indices  # [n]; all zero where classes == 0 (regression)
    classes: int
    seed: int
    client: npt.NDArray[Any] | None = None  # [n] natural client id per row
    context: Indices | None = None  # [n]
    official_test: Indices | None = None  # labels of the official test rows, which follow the pool's rows
    test_share: float = 0.25
    validation: float = 0.0
    validation_part: int = 0
    downsample: Downsample | None = None
    key: str = "data.partition"  # where the run description describes the partition, for errors
    partition: str = ""  # its name

    def require(self, condition: bool, setting: str, value: object, expected: str) -> None:
        """Refuse a setting of the partition unless `condition` holds."""
        require(condition, f"{self.key}.{setting}", value, expected)

    def __len__(self) -> int:
        return len(self.labels)

    def by_class(self, rng: np.random.Generator) -> list[Indices]:
        """The indices of each class, shuffled. Raises DescriptionError for data without classes."""
        unfit = "must be iid or natural: the data have no classes"
        self.require(self.classes > 0, "name", self.partition, unfit)
        order = rng.permutation(len(self))
        by_label = order[np.argsort(self.labels[order], kind="stable")]
        return np.split(by_label, np.cumsum(self.class_counts)[:-1])

    @property
    def class_counts(self) -> Indices:
        """How many samples each class has, [classes]."""
        return np.bincount(self.labels, minlength=self.classes)
