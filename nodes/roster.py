"""Who takes part in a run, for the record."""

import json
from typing import Any


def roster(study: Any) -> list[list[Any]]:
    """One row per client of a `pflsim.study.Study`, as the record's table `clients` has them."""
    return [_row(study, number, name) for number, name in enumerate(study.names)]


def _row(study: Any, number: int, name: str) -> list[Any]:
    part = study.data.partition.parts[number]
    labels = study.federation.labels[number] if study.data.classes else ()  # a regression has targets instead
    return [
        number,
        name,
        len(part.train),
        len(part.validation),
        len(part.test),
        json.dumps(list(labels)),
        study.devices.speed_class(name),
        study.devices.device(name).flops_per_second,
    ]
