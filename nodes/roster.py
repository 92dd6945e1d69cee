"""Who takes part in a run, for the record, and what must be equal on all machines."""

import json
from typing import Any

import numpy as np


def roster(study: Any) -> list[list[Any]]:
    """One row per client of a `pflsim.study.Study`, as the record's table `clients` has them."""
    return [_row(study, number, name) for number, name in enumerate(study.names)]


def what_it_has(study: Any) -> dict[str, str]:
    """What the bits of a `pflsim.study.Study` depend on beside its description: software, data, and the first model."""
    import torch

    from pflsim.digest import digest_of  # which imports torch, as who has a study has done already

    return {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "data": digest_of([study.data.x, study.data.y, study.data.public]).hex(),
        "partition": study.identity()["partition"],
        "initial model": digest_of(study.initial).hex(),
    }


def _row(study: Any, number: int, name: str) -> list[Any]:
    part = study.data.partition.parts[number]
    labels, counts = _labels(study, number)
    return [
        number,
        name,
        len(part.train),
        len(part.validation),
        len(part.test),
        json.dumps(labels),
        study.devices.speed_class(name),
        study.devices.device(name).flops_per_second,
        json.dumps(counts),
    ]


def _labels(study: Any, number: int) -> tuple[list[int], list[int]]:
    """The labels that occur in a client's training samples, ascending, and how often each of them does."""
    if not study.data.classes:  # a regression has targets instead
        return [], []
    labels, counts = np.unique(study.data.y[study.data.partition.parts[number].train], return_counts=True)
    return labels.tolist(), counts.tolist()
