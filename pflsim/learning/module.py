"""What is settled about a torch module before training: what is a parameter, what it costs, how it starts.

Only parameters that require a gradient are part of the vector. Everything else stays as the constructor left
it:

* Buffers and frozen parameters are constants. They never travel and never change; a module that changes a
  buffer in its forward pass is refused, because what it remembers would leak between the clients that share
  a process.
* Normalisation layers keep no running averages (those would be such a memory): they use the statistics of
  the batch at hand, in training and in evaluation. BatchNorm1d therefore cannot take a batch of one sample;
  `pflsim.learning.model.require_batches` refuses a run in which there would be one.
* Random layers such as dropout are active in training only. A module that draws random numbers in evaluation
  is refused.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pflsim.errors import DescriptionError

Start = Literal["uniform", "module", "zero"]
"""How w0 is chosen: uniform in +-1/sqrt(fan_in), as the module's constructor left it, or all 0."""

_PROBE_SAMPLES = 2  # not 1: BatchNorm1d cannot normalise a single sample


@dataclass(frozen=True)
class Probe:
    """What one pass of blank samples through a module shows."""

    forward_flops: float  # of one sample
    is_random: bool  # draws random numbers in training, as dropout does
    takes_one: bool  # can take a batch of a single sample, which BatchNorm1d cannot


def probe(module: nn.Module, shape: tuple[int, ...]) -> Probe:
    """Switch running averages off, try `module` on samples of `shape`, and refuse what cannot work."""
    for part in module.modules():
        if getattr(part, "track_running_stats", False):
            _use_batch_statistics(part)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _counted_flops(module) as flops:
        if _draws_random_numbers(module.eval(), shape):
            raise _refusal(module, "it draws random numbers in evaluation, so that no result could be repeated")
        before = {name: (id(buffer), buffer._version) for name, buffer in module.named_buffers()}
        is_random = _draws_random_numbers(module.train(), shape)
        twice = len(flops)  # one pass in evaluation and one in training
        takes_one = _takes_one(module, shape)
        after = {name: (id(buffer), buffer._version) for name, buffer in module.named_buffers()}
    if before != after:
        changed = ", ".join(sorted(name for name in after if before.get(name) != after[name]))
        raise _refusal(module, f"its forward pass changes the buffers {changed}; buffers must stay constant")
    return Probe(sum(flops[:twice]) / (2 * _PROBE_SAMPLES), is_random, takes_one)


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that make up the vector, by name, each shared one once; refuses a module without any."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if len({p.dtype for p in trained.values()}) != 1:
        raise _refusal(module, "it must have parameters to train, all of one dtype")
    return trained


def starting_values(module: nn.Module, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Uniform values in +-1/sqrt(fan_in) for the weights and biases of `module`, by name.

    A bias has the fan-in of the weight beside it. One-dimensional parameters without such a weight, as those
    of normalisation layers, have no fan-in and are left out.
    """
    values: dict[str, np.ndarray[Any, Any]] = {}
    parameters = dict(module.named_parameters())
    for name, parameter in parameters.items():
        weight = parameters.get(f"{name.removesuffix('bias')}weight", parameter)
        matrix = parameter if parameter.dim() > 1 else weight
        if parameter.requires_grad and matrix.dim() > 1:
            bound = 1 / math.sqrt(max(1, math.prod(matrix.shape[1:])))
            values[name] = rng.uniform(-bound, bound, tuple(parameter.shape))
    return values


def _use_batch_statistics(layer: Any) -> None:
    layer.track_running_stats = False
    layer.running_mean = layer.running_var = layer.num_batches_tracked = None


def _draws_random_numbers(module: nn.Module, shape: tuple[int, ...]) -> bool:
    dtype = next(iter(trained_parameters(module).values())).dtype
    state = torch.random.get_rng_state()
    try:
        output = module(torch.zeros((_PROBE_SAMPLES, *shape), dtype=dtype))
    except (RuntimeError, ValueError, IndexError) as problem:
        raise _refusal(module, f"it cannot take samples of shape {list(shape)} ({problem})") from problem
    if not isinstance(output, Tensor) or output.dim() != 2 or len(output) != _PROBE_SAMPLES:
        raise _refusal(module, "it must turn samples [n, ...] into logits [n, classes]")
    return not torch.equal(state, torch.random.get_rng_state())


def _takes_one(module: nn.Module, shape: tuple[int, ...]) -> bool:
    dtype = next(iter(trained_parameters(module).values())).dtype
    try:
        module(torch.zeros((1, *shape), dtype=dtype))
    except (RuntimeError, ValueError):
        return False
    return True


def _refusal(module: nn.Module, reason: str) -> DescriptionError:
    return DescriptionError("model.name", type(module).__name__, reason)


@contextmanager
def _counted_flops(module: nn.Module) -> Iterator[list[float]]:
    """Collect two operations per multiply-add of each linear and convolution layer; others count as 0."""
    flops: list[float] = []

    def linear(layer: nn.Linear, _: object, output: Tensor) -> None:
        flops.append(2.0 * output.numel() * layer.in_features)

    def convolution(layer: nn.Conv2d, _: object, output: Tensor) -> None:
        taps = layer.in_channels // layer.groups * math.prod(layer.kernel_size)
        flops.append(2.0 * output.numel() * taps)

    hooks = [
        part.register_forward_hook(linear if isinstance(part, nn.Linear) else convolution)
        for part in module.modules()
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)
    ]
    try:
        yield flops
    finally:
        for hook in hooks:
            hook.remove()
