"""Data for a run: `load` reads a data set, pools its rows, scales them, and divides them among the clients.

A file of the room `datasets` is one function `(directory, *, settings) -> Dataset`; it says what there is,
unscaled. What is the same for all of them is in the `[data]` table that `DataSettings` describes. Any other
key of the table is a setting of the data set named there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pflsim import catalogue
from pflsim.data.divide import divide
from pflsim.data.files import data_directory
from pflsim.data.partition import NONE, Downsample, Indices, Part, Partition, PartitionReport, Pool, require
from pflsim.data.scaling import Scaling, scaled
from pflsim.errors import DescriptionError
from pflsim.rng import stream

__all__ = ["Data", "DataSettings", "Dataset", "Part", "Partition", "PartitionReport", "load", "settings"]

Array = npt.NDArray[Any]

MOST_CLASSES = 100_000
"""More classes than any study has; a label beyond it is a mistake, and costs memory in every count by class."""


@dataclass(frozen=True)
class Dataset:
    """What a data set has, as stored. Raises DescriptionError where its arrays do not fit together."""

    name: str
    x: Array  # [n, *shape], the official training part: uint8 pixels, or float32 features
    y: Array  # [n] int64 labels; float32 targets where classes == 0 (regression)
    classes: int
    x_test: Array | None = None  # the official test part, if there is one
    y_test: Array | None = None
    client: Array | None = None  # [n] natural client id per row
    client_test: Array | None = None  # the same for the test rows
    context: Array | None = None  # [n] known context, synthetic data only
    full_scale: float | None = None  # the value of a white pixel; None for features that need no scaling

    def __post_init__(self) -> None:
        """Check lengths, values and labels."""
        for what, rows in (("x", self.x), ("x_test", self.x_test)):
            if rows is not None:
                shape = f"{what} must have a row at least and a number in each row, not the shape {rows.shape}"
                require(rows.ndim >= 2 and rows.size > 0, "data.name", self.name, shape)
                require(rows.dtype.kind in "uif", "data.name", self.name, f"{what} must be numbers, not {rows.dtype}")
        count = f"has {self.classes} classes by its largest label: at most {MOST_CLASSES} make sense"
        require(0 <= self.classes <= MOST_CLASSES, "data.name", self.name, count)
        self._check_rows()

    def _check_rows(self) -> None:
        per_row = {"y": self.y, "client": self.client, "context": self.context}
        per_test_row = {"y_test": self.y_test, "client_test": self.client_test}
        for x, columns in ((self.x, per_row), (self.x_test, per_test_row)):
            rows = 0 if x is None else len(x)
            for what, array in columns.items():
                shapes = f"{what} does not have one value for each of {rows} rows"
                require(array is None or array.shape == (rows,), "data.name", self.name, shapes)
        shapes = f"x_test must be [n, {', '.join(map(str, self.x.shape[1:]))}] with a y_test"
        fits = self.x_test is None or (self.y_test is not None and self.x_test.shape[1:] == self.x.shape[1:])
        require(fits, "data.name", self.name, shapes)
        for values in (self.x, self.x_test, self.y, self.y_test):
            finite = values is None or values.dtype.kind != "f" or bool(np.isfinite(values).all())
            require(finite, "data.name", self.name, "has values that are not finite numbers")
        known = f"labels must be whole numbers from 0 to {self.classes - 1}"
        for labels in (self.y, self.y_test) if self.classes else ():
            if labels is not None and len(labels):
                whole = labels.dtype.kind in "iu" and labels.min() >= 0 and labels.max() < self.classes
                require(bool(whole), "data.name", self.name, known)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The keys of the `[data]` table that every data set has."""

    name: str
    dir: str | None = None  # default: the environment variable PFLSIM_DATA, else ./data
    pool: Literal["train", "all"] = "train"  # what is divided: the official training part, or test rows too
    pool_limit: int | None = None  # at most so many rows of it, chosen at random
    public_share: float | None = None  # share of these set aside, which everybody sees without labels; None: none
    scaling: Scaling = "unit"  # to [0, 1]; the others are told in `pflsim.data.scaling`
    partition: dict[str, Any] = field(default_factory=lambda: {"name": "iid"})
    test: Literal["within", "official"] = "within"  # split each client, or deal out the test part
    test_share: float = 0.25
    validation: float = 0.0  # share of each training part
    validation_part: int = 0  # which one of such shares, from 0: with a share of 1 / k these are k folds
    downsample: dict[str, float] | None = None  # clients, keep, test_keep


@dataclass(frozen=True)
class Data:
    """All that a run needs: the parts of `partition`, and `public`, are indices into the rows of `x` and `y`."""

    name: str
    x: npt.NDArray[np.float32]  # [n, *shape], scaled
    y: Array  # [n]
    classes: int  # 0: regression
    partition: Partition
    report: PartitionReport
    public: Indices = field(default_factory=NONE.copy)  # nobody's own, and in no test part

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.x.shape[1:]


def settings(table: Mapping[str, Any]) -> tuple[DataSettings, dict[str, Any]]:
    """The common keys of the `[data]` table and the data set's own, checked; raises DescriptionError.

    Reads no data, so a run description can be checked on a machine that has none.
    """
    name = table.get("name")
    known = ", ".join(catalogue.names("datasets"))
    if not isinstance(name, str):
        raise DescriptionError("data.name", name, f"must name a data set; known are {known}")
    found = catalogue.find("datasets", name, "data.name")
    own = catalogue.settings_of(found)
    common = {key.name for key in fields(DataSettings)}
    for key, value in table.items():
        if key not in common and key not in own:
            near = catalogue.near_match(key, sorted(common | set(own)))
            raise DescriptionError(f"data.{key}", value, f"unknown key; {near}")
    given = {key: value for key, value in table.items() if key in common}
    checked = DataSettings(**catalogue.validated(DataSettings, given, "data"))
    rest = {key: value for key, value in table.items() if key not in common}
    _check_ranges(checked)
    return checked, catalogue.validated(found, rest, "data")


def _check_ranges(table: DataSettings) -> None:
    for key in ("test_share", "validation", "public_share"):
        share = getattr(table, key) or 0.0
        require(0 <= share < 1, f"data.{key}", share, "must be at least 0 and below 1")
    part, most = table.validation_part, 1 / table.validation - 1 if table.validation else 0
    require(0 <= part <= most + 1e-9, "data.validation_part", part, "must count shares of data.validation from 0")
    limit = table.pool_limit
    require(limit is None or limit >= 1, "data.pool_limit", limit, "must be at least 1")
    both = 'needs data.pool = "train": the test rows cannot be in the pool too'
    require(table.test == "within" or table.pool == "train", "data.test", table.test, both)
    rule = _downsample(table)
    for key in ("clients", "keep", "test_keep") if rule else ():
        share = getattr(rule, key)
        require(0 < share <= 1, f"data.downsample.{key}", share, "must be above 0 and at most 1")


def _downsample(table: DataSettings) -> Downsample | None:
    if table.downsample is None:
        return None
    return Downsample(**catalogue.validated(Downsample, table.downsample, "data.downsample"))


def load(table: Mapping[str, Any], seed: int, clients: int) -> Data:
    """The data of a run, from the `[data]` table, the data seed and the number of clients.

    The rows of the pool come first; with `test = "official"` the official test rows follow; the public rows come last.
    Raises DescriptionError, naming the key, for everything that cannot work.
    """
    common, own = settings(table)
    found = catalogue.find("datasets", common.name, "data.name")
    dataset: Dataset = catalogue.made(found, "data.name", common.name, Dataset, data_directory(common.dir), **own)
    if common.test == "official" and dataset.y_test is None:
        raise DescriptionError("data.test", "official", f"{dataset.name} has no official test part here")
    rows, public = _without_public(_pool_rows(dataset, common, seed), common.public_share or 0.0, seed)
    official = dataset.y_test if common.test == "official" else None
    pool = Pool(
        labels=_labels(rows.y, rows.classes),
        classes=rows.classes,
        seed=seed,
        client=rows.client,
        context=rows.context,
        official_test=None if official is None else _labels(official, rows.classes),
        test_share=common.test_share,
        validation=common.validation,
        validation_part=common.validation_part,
        downsample=_downsample(common),
    )
    partition = divide(pool, common.partition, clients)
    further = [public] if official is None or dataset.x_test is None else [(dataset.x_test, official), public]
    x = scaled(rows.x, np.concatenate([x for x, _ in further]), common.scaling, dataset.full_scale)
    y = np.concatenate([rows.y, *(y for _, y in further)])
    y = y.astype(np.int64 if rows.classes else np.float32)
    last = np.arange(len(y) - len(public[1]), len(y))
    return Data(dataset.name, x, y, rows.classes, partition, partition.report(y), last)


def _without_public(rows: Dataset, share: float, seed: int) -> tuple[Dataset, tuple[Array, Array]]:
    """The rows that are to be divided, and x and y of those that are set aside for everybody."""
    chosen = np.sort(stream(seed, "public").permutation(len(rows.x))[: round(share * len(rows.x))])
    if not len(chosen):
        return rows, (rows.x[:0], rows.y[:0])
    kept = np.setdiff1d(np.arange(len(rows.x)), chosen)
    client = None if rows.client is None else rows.client[kept]
    context = None if rows.context is None else rows.context[kept]
    own = replace(rows, x=rows.x[kept], y=rows.y[kept], client=client, context=context)
    return own, (rows.x[chosen], rows.y[chosen])


def _labels(y: Array, classes: int) -> Indices:
    """What partitions and splits go by: the labels, or one label for all where the data have none."""
    return y.astype(np.int64) if classes else np.zeros(len(y), np.int64)


def _pool_rows(dataset: Dataset, common: DataSettings, seed: int) -> Dataset:
    """The rows to be divided, as a data set without a test part."""
    x, y, client, context = dataset.x, dataset.y, dataset.client, dataset.context
    if common.pool == "all" and dataset.x_test is not None and dataset.y_test is not None:
        x, y = np.concatenate([x, dataset.x_test]), np.concatenate([y, dataset.y_test])
        both_known = client is not None and dataset.client_test is not None
        client = np.concatenate([client, dataset.client_test]) if both_known else None
        context = None
    if common.pool_limit is not None and common.pool_limit < len(x):
        rng = stream(seed, "pool limit")
        chosen = np.sort(rng.choice(len(x), common.pool_limit, replace=False))
        x, y = x[chosen], y[chosen]
        client = None if client is None else client[chosen]
        context = None if context is None else context[chosen]
    return Dataset(dataset.name, x, y, dataset.classes, client=client, context=context)
