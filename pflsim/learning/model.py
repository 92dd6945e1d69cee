"""From the `[model]` table of a run description to a network."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import nn

from pflsim import catalogue, outside
from pflsim.errors import DescriptionError
from pflsim.learning.module import Start
from pflsim.learning.training import Training
from pflsim.learning.vector import Network, network
from pflsim.rng import torch_seed

_SAMPLES = 2  # not 1: BatchNorm1d cannot normalise a single sample


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
        _require_outputs(module, table["name"], shape, classes)
        return network(module, shape, start)
    except DescriptionError as problem:
        value = table["name"] if problem.key == "model.name" else problem.value
        raise DescriptionError(problem.key, value, problem.expected) from problem


def _require_outputs(module: nn.Module, name: str, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a module of a user's own that cannot take samples of this shape, or has other outputs than one a class."""
    if ":" not in name:
        return
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            given = module.eval()(torch.zeros(_SAMPLES, *shape))
    except Exception as problem:
        reason = f"it cannot take samples of shape {list(shape)}: {outside.told(problem)}"
        raise DescriptionError("model.name", name, reason) from problem
    if not isinstance(given, torch.Tensor) or (classes and given.shape != (_SAMPLES, classes)):
        got = list(given.shape) if isinstance(given, torch.Tensor) else f"a {type(given).__name__}"
        reason = f"must return [{_SAMPLES}, {classes}] logits for {_SAMPLES} samples of {classes} classes, not {got}"
        raise DescriptionError("model.name", name, reason)


def require_batches(
    network: Network, training: Training, names: Sequence[str], sizes: Sequence[int], evaluated: Sequence[int]
) -> None:
    """Refuse batches of a single sample where the model cannot take them.

    `sizes` and `evaluated` are the training samples of each client [N], and those of its smallest part that is
    evaluated and not empty [N]. Raises DescriptionError with the client's name and what would be right.
    """
    if network.takes_one:
        return
    reason = "which the model cannot take (a batch normalisation knows nothing of one sample)"
    for name, size, among in zip(names, sizes, evaluated, strict=True):
        if among == 1:
            mend = f"leaves {name} a single sample to be evaluated on, {reason}: use fewer clients or more data"
            raise DescriptionError("data.partition", "this partition", mend)
        if _has_single(size, training.batch):
            least = max(training.batch, 2)
            fits = next((b for b in range(least, least + 1000) if not any(_has_single(n, b) for n in sizes)), None)
            mend = f"{fits} would do" if fits else "use fewer clients or more data"
            single = f"leaves {name}, with {size} training samples, a batch of a single one"
            raise DescriptionError("training.batch", training.batch, f"{single}, {reason}: {mend}")


def _has_single(samples: int, batch: int) -> bool:
    """Whether a pass over so many samples has a batch of one."""
    return samples > 0 and (batch == 1 or samples % batch == 1 or samples == 1)
