"""A torch module seen as one flat vector [d], and averages of such vectors.

`Network` keeps two flat buffers, one for the parameters and one for the gradient; the module's parameters
and their gradients are views into them, so that a gradient is one backward pass and a step is one vector
operation. What counts as a parameter, and what becomes of buffers, normalisation and dropout, is settled in
`pflsim.learning.module`.

Bits: matrix products may round differently for differently aligned memory, and vectors that arrived in a
message lie anywhere. Everything is therefore computed from memory that torch itself allocated, which starts
at 64 bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from pflsim.errors import RunFailed
from pflsim.learning.loss import Loss, default_loss
from pflsim.learning.module import Start, probe, starting_values, trained_parameters
from pflsim.rng import torch_seed

_ALIGNMENT_BYTES = 64
_AVERAGE_CHUNK = 65_536  # two float64 chunks of this length fit a core's cache; a whole vector of 10 million does not


@dataclass(frozen=True)
class Layout:
    """Which part of a vector [d] is which parameter, in the module's own order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def dimension(self) -> int:
        """The length d of the vector."""
        return sum(prod(shape) for shape in self.shapes)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each parameter starts."""
        return tuple(accumulate((prod(shape) for shape in self.shapes[:-1]), initial=0))

    @property
    def layers(self) -> tuple[int, ...]:
        """How many parameters (tensors) each layer has, in order."""
        return tuple(len(list(names)) for _, names in groupby(self.names, lambda name: name.rpartition(".")[0]))

    def begin_of_last(self, layers: int) -> int:
        """Where in a vector [d] the last so many layers begin; d for none of them."""
        others = sum(self.layers[: len(self.layers) - layers])
        return (*self.offsets, self.dimension)[others]

    def span(self, name: str) -> slice:
        """The slice of the vector that holds parameter `name`; raises ValueError for an unknown name."""
        place = self.names.index(name)
        return slice(self.offsets[place], self.offsets[place] + prod(self.shapes[place]))

    def view(self, w: Tensor, name: str) -> Tensor:
        """Parameter `name` inside `w` [d], in its own shape, sharing memory."""
        return w[self.span(name)].view(self.shapes[self.names.index(name)])

    def views(self, w: Tensor) -> dict[str, Tensor]:
        """Every parameter inside `w` [d], by name, sharing memory."""
        parts = torch.split(w, [prod(shape) for shape in self.shapes])
        return {name: part.view(shape) for name, shape, part in zip(self.names, self.shapes, parts, strict=True)}


class Network:
    """A module as a function of one vector: logits, gradients and plain descent; this form uses autograd."""

    layout: Layout
    forward_flops: float  # of one sample, estimated; a gradient costs about three times as much
    is_random: bool  # True where training draws random numbers (dropout)
    takes_one: bool  # False where a batch of a single sample cannot be normalised (BatchNorm1d)

    def __init__(self, module: nn.Module, shape: tuple[int, ...], start: Start = "uniform") -> None:
        probed = probe(module, shape)
        self.forward_flops, self.is_random, self.takes_one = probed.forward_flops, probed.is_random, probed.takes_one
        trained = trained_parameters(module)
        self.layout = Layout(tuple(trained), tuple(tuple(p.shape) for p in trained.values()))
        self._module, self._start = module, start
        self._w = torch.cat([p.detach().reshape(-1) for p in trained.values()])
        self._constructed = self._w.clone()
        self._g = torch.zeros_like(self._w)
        self._in_loss = False
        for name, value in self.layout.views(self._w).items():
            trained[name].data = value
        for name, value in self.layout.views(self._g).items():
            trained[name].grad = value

    def initial(self, rng: np.random.Generator) -> Tensor:
        """A starting vector [d] ; only the start "uniform" draws from `rng`."""
        w = self._constructed.clone()
        if self._start == "zero":
            w.zero_()
        if self._start == "uniform":
            for name, value in starting_values(self._module, rng).items():
                self.layout.view(w, name).copy_(torch.from_numpy(value))
        return w

    def state(self, w: Tensor) -> dict[str, Tensor]:
        """What the module's `state_dict` holds at `w` [d], constants too, so that a plain module can load it."""
        self._w.copy_(w)
        return {name: value.detach().clone() for name, value in self._module.state_dict().items()}

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """The outputs [b, C] at `w` [d] for samples `x` [b, ...], as in evaluation: nothing random."""
        with torch.no_grad():
            self._module.eval()
            return functional_call(self._module, self.layout.views(aligned(w)), (x,))  # type: ignore[no-any-return]

    def gradient(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        loss: Loss | None = None,
        out: Tensor | None = None,
        rng: np.random.Generator | None = None,
    ) -> Tensor:
        """The gradient [d] at `w` [d] of the mean loss of the batch `x` [b, ...], `y` [b].

        Without `loss`: cross-entropy for integer labels, half the squared error for real targets. The loss
        may itself ask for `logits`, but not for a gradient. `rng` decides what dropout drops, and is needed
        where there is some.
        """
        if self.is_random:
            if rng is None:
                raise ValueError("this network is random in training: gradient needs an rng")
            torch_seed(rng)
        self._refuse_nesting()
        self._w.copy_(w)
        with torch.no_grad():
            self._differentiate(x, y, loss)
        return self._g.clone() if out is None else out.copy_(self._g)

    def descend(
        self, w: Tensor, batches: Iterable[tuple[Tensor, Tensor]], step_size: float, loss: Loss | None = None
    ) -> Tensor:
        """A new vector: `w` after one step of plain gradient descent per batch (x, y).

        Gives the bits of `w.add(gradient(w, x, y), alpha=-step_size)` without its copies. Not for random
        networks.
        """
        self._refuse_nesting()
        self._w.copy_(w)
        with torch.no_grad():
            for x, y in batches:
                self._differentiate(x, y, loss)
                self._w.add_(self._g, alpha=-step_size)
        return self._w.clone()

    def _differentiate(self, x: Tensor, y: Tensor, loss: Loss | None) -> None:
        """Fill the gradient buffer with the gradient at the parameter buffer; autograd is off around it."""
        self._module.train()
        self._g.zero_()
        with torch.enable_grad():
            self._call_loss(self._module(x), y, loss).backward()  # type: ignore[no-untyped-call]

    def _call_loss(self, outputs: Tensor, y: Tensor, loss: Loss | None) -> Tensor:
        self._in_loss = True
        try:
            return (loss or default_loss(y))(outputs, y)
        finally:
            self._in_loss = False

    def _refuse_nesting(self) -> None:
        if self._in_loss:
            raise RuntimeError("a loss function must not ask its own network for a gradient")


def network(module: nn.Module, shape: Sequence[int], start: Start = "uniform") -> Network:
    """`module` as a function of one vector, for samples of `shape`; takes the module over.

    Sequential(Flatten, Linear, ReLU, Linear, ...) gets its gradient derived by hand, anything else by
    autograd. Raises DescriptionError where the module cannot take the samples or breaks a rule of
    `pflsim.learning.module`.
    """
    from pflsim.learning.fully_connected import FullyConnected, is_fully_connected  # it builds on this module

    form = FullyConnected if is_fully_connected(module) else Network
    return form(module, tuple(shape), start)


def average(vectors: Iterable[Tensor], weights: Iterable[float]) -> Tensor | None:
    """sum_i a_i u_i / sum_i a_i, or None (keep the old model) where nothing counts.

    Nothing counts where no vector is given or the weights sum to 0.

    Sums in the order given (ascending client id), in float64, and casts once at the end.
    """
    given, shares = list(vectors), [float(weight) for weight in weights]
    if len(given) != len(shares):
        raise ValueError(f"{len(given)} vectors but {len(shares)} weights")
    total = sum(shares)
    if total == 0:
        return None
    result = torch.empty_like(given[0])
    running = torch.empty(min(_AVERAGE_CHUNK, result.numel()), dtype=torch.float64)
    wide = torch.empty_like(running)
    for low in range(0, result.numel(), _AVERAGE_CHUNK):
        part = slice(low, min(low + _AVERAGE_CHUNK, result.numel()))
        length = part.stop - low
        chunk, term = running[:length].zero_(), wide[:length]
        for vector, share in zip(given, shares, strict=True):
            chunk.add_(term.copy_(vector[part]), alpha=share)
        result[part] = chunk.div_(total)
    return result


def aligned(w: Tensor) -> Tensor:
    """`w`, or a copy of it where its memory does not start at 64 bytes, as in a message that has arrived."""
    return w if w.data_ptr() % _ALIGNMENT_BYTES == 0 else w.clone()


@contextmanager
def unchanged(what: str, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Raises RunFailed, naming `what`, if one of `tensors` is written to in the with-block.

    A process may run one client or many, which share what they start from: a result would depend on how many.
    """
    before = [tensor._version for tensor in tensors]
    yield
    if [tensor._version for tensor in tensors] != before:
        raise RunFailed(what, "has changed a tensor that it was given; it must make new ones")
