"""From the `[model]` table of a run description to a network."""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from torch import nn

from pflsim import catalogue
from pflsim.errors import DescriptionError
from pflsim.learning.module import Start
from pflsim.learning.vector import Network, network
from pflsim.rng import torch_seed


def load(table: Mapping[str, Any], shape: tuple[int, ...], classes: int, rng: np.random.Generator) -> Network:
    """The network that `table` names: `name`, `start` ("uniform", "module" or "zero") and the model's own
    settings.

    `rng` decides what the module's constructor draws, which matters for its constants and for start =
    "module".
    """
    settings = {key: value for key, value in table.items() if key not in ("name", "start")}
    start: Start = table.get("start", "uniform")
    if start not in get_args(Start):
        raise DescriptionError("model.start", start, catalogue.near_match(str(start), list(get_args(Start))))
    if not isinstance(table.get("name"), str):
        raise DescriptionError("model.name", table.get("name"), "must name a model")
    make = catalogue.find("models", table["name"], "model.name")
    settings = catalogue.validated(make, settings, "model")
    torch_seed(rng)
    try:
        module = catalogue.made(make, "model.name", table["name"], nn.Module, shape, classes, **settings)
        return network(module, shape, start)
    except DescriptionError as problem:
        value = table["name"] if problem.key == "model.name" else problem.value
        raise DescriptionError(problem.key, value, problem.expected) from problem
