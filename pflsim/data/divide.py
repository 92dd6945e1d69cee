"""From the `partition` table of a run description to who holds which samples."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pflsim import catalogue
from pflsim.data import split
from pflsim.data.partition import Draw, Indices, Part, Partition, Pool, require
from pflsim.errors import DescriptionError
from pflsim.rng import stream


def divide(pool: Pool, table: Mapping[str, Any], clients: int, key: str = "data.partition") -> Partition:
    """The partition that `table` (its name and settings) describes, with the rules of `pool` applied.

    Raises DescriptionError for what is unknown or cannot be: more clients than samples, an empty client.
    """
    require(clients >= 1, "run.clients", clients, "must be at least 1")
    too_many = f"more clients than the {len(pool)} samples: at most {len(pool) // 2} can train and test"
    require(clients <= len(pool), "run.clients", clients, too_many)
    settings = dict(table)
    name = settings.pop("name", None)
    known = ", ".join(catalogue.names("partitions"))
    if not isinstance(name, str):
        raise DescriptionError(f"{key}.name", name, f"must name a partition; known are {known}")
    found = catalogue.find("partitions", name, f"{key}.name")
    checked = catalogue.validated(found, settings, key)
    pool = replace(pool, key=key, partition=name)
    kinds, rng = (Partition, Draw, list, tuple), stream(pool.seed, "partition")
    drawn = catalogue.made(found, f"{key}.name", name, kinds, pool, clients, rng, **checked)
    if isinstance(drawn, Partition):
        return drawn
    draw = drawn if isinstance(drawn, Draw) else Draw(drawn)
    if ":" in name:
        draw = _as_indices(pool, draw, clients)
    parts = _with_test(pool, draw)
    for client, part in enumerate(parts):
        empty = f"leaves client {client} without a training sample: use fewer clients or more data"
        pool.require(len(part.train) > 0, "name", name, empty)
    return _with_rules(pool, parts, dict(draw.notes))


def _as_indices(pool: Pool, draw: Draw, clients: int) -> Draw:
    """What a user's own partition gives, if each client has indices of the pool's samples, each once."""
    count = f"gives {len(draw.clients)} clients their samples, and there are {clients}"
    pool.require(len(draw.clients) == clients, "name", pool.partition, count)
    checked: list[Any] = []
    for client, given in enumerate(draw.clients):
        every = given.all if isinstance(given, Part) else np.asarray(given)
        whole = every.ndim == 1 and (every.dtype.kind in "iu" or not every.size)
        wanted = f"must give client {client} whole numbers from 0 to {len(pool) - 1}, each once"
        right = whole and len(np.unique(every)) == len(every) and (not every.size or every.min() >= 0)
        most = len(pool) + (0 if pool.official_test is None else len(pool.official_test))
        pool.require(right and (not every.size or int(every.max()) < most), "name", pool.partition, wanted)
        checked.append(given if isinstance(given, Part) else every.astype(np.int64))
    return replace(draw, clients=checked)


def _require_rest(key: str, share: float, sizes: Iterable[int]) -> None:
    """Refuse a share that takes all samples even of the client that has most."""
    most = max(sizes, default=0)
    at_most = math.floor(1000 * (most - 1) / most) / 1000 if most else 0.0
    leaves = f"leaves nothing to train on: the largest client has {most} samples, so at most {at_most:g}"
    require(most < 2 or math.ceil(share * most - 1e-9) < most, key, share, leaves)


def _with_test(pool: Pool, draw: Draw) -> list[Part]:
    """Training and test part of each client: the partition's own, the official one, or a split."""
    if all(isinstance(drawn, Part) for drawn in draw.clients):
        own = 'decides the test parts itself: use "within"'
        require(pool.official_test is None, "data.test", "official", f"this partition {own}")
        return [drawn for drawn in draw.clients if isinstance(drawn, Part)]
    held: list[Indices] = [np.sort(drawn) for drawn in draw.clients if not isinstance(drawn, Part)]
    if pool.official_test is not None:
        rng = stream(pool.seed, "official test")
        tests = split.official_test([pool.labels[samples] for samples in held], pool.official_test, rng)
        return [Part(train, test=test + len(pool)) for train, test in zip(held, tests, strict=True)]
    parts = []
    _require_rest("data.test_share", pool.test_share, map(len, held))
    for client, samples in enumerate(held):
        rng = stream(pool.seed, "split", client)
        train, test = split.stratified(samples, pool.labels, pool.test_share, rng)
        parts.append(Part(train, test=test))
    return parts


def _with_rules(pool: Pool, parts: list[Part], notes: dict[str, Any]) -> Partition:
    """Remove data of the down-sampled clients, then take the validation part off what is left to train on."""
    labels = pool.labels
    if pool.official_test is not None:
        labels = np.concatenate([labels, pool.official_test])
    rule = pool.downsample
    if rule is not None:
        rng = stream(pool.seed, "downsample")
        chosen = np.sort(rng.choice(len(parts), round(rule.clients * len(parts)), replace=False))
        notes["downsampled"] = chosen.tolist()
        for client in chosen.tolist():
            rng = stream(pool.seed, "downsample", client)
            train = split.keep_share(parts[client].train, labels, rule.keep, rng)
            test = split.keep_share(parts[client].test, labels, rule.test_keep, rng)
            parts[client] = Part(train, test=test)
    _require_rest("data.validation", pool.validation, (len(part.train) for part in parts))
    for client, part in enumerate(parts):
        rng = stream(pool.seed, "validation", client)
        rest, validation = split.stratified(part.train, labels, pool.validation, rng)
        for number in range(1, pool.validation_part + 1):  # the next share, of what no earlier one has
            share = min(1.0, pool.validation / (1 - number * pool.validation))
            rest, validation = split.stratified(rest, labels, share, rng)
        train = np.setdiff1d(part.train, validation)
        parts[client] = replace(part, train=train, validation=validation)
    if pool.context is not None:
        held = [pool.context[part.train] for part in parts]
        notes["contexts"] = [int(np.bincount(contexts).argmax()) for contexts in held]
    return Partition(tuple(parts), notes)
