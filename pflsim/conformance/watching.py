"""A method whose every call is watched: it changes no argument, and what it returns is finite and survives the wire."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from pflsim.federation import Tensors


class BrokenRule(AssertionError):
    """A method does what no method may do."""


def require(holds: bool, said: str) -> None:
    """Raises BrokenRule, saying so, unless it `holds`."""
    if not holds:
        raise BrokenRule(said)


def as_it_is(tensors: Tensors) -> Tensors:
    """A way that changes nothing."""
    return tensors


def over_the_wire(tensors: Tensors) -> Tensors:
    """What the receiver makes of the bytes, in memory that starts anywhere."""
    arrived = {}
    for name, tensor in tensors.items():
        require(isinstance(tensor, torch.Tensor), f"{name} travels as a {type(tensor).__name__}, and only tensors do")
        require(tensor.dtype in (torch.float32, torch.int64), f"{name} travels as {tensor.dtype}")
        frame = bytearray(8) + bytearray(tensor.detach().contiguous().numpy().tobytes())
        arrived[name] = torch.frombuffer(frame, dtype=tensor.dtype, offset=8).reshape(tensor.shape)
    return arrived


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor that can be reached from an argument or a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors_in(part)]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors_in(part)]
    if dataclasses.is_dataclass(value):
        return tensors_in([getattr(value, field.name) for field in dataclasses.fields(value)])
    return []


def same(one: Any, other: Any) -> bool:
    """Whether all tensors in both are equal, bit by bit."""
    first, second = tensors_in(one), tensors_in(other)
    return len(first) == len(second) and all(map(torch.equal, first, second))


def title(method: Any) -> str:
    """What a method is called, watched or not."""
    return method.title if isinstance(method, Watched) else type(method).__name__


class Watched:
    """A method whose every call is checked; what it sends goes over `on_wire`."""

    def __init__(self, method: Any, on_wire: Callable[[Tensors], Tensors] = as_it_is) -> None:
        self._method, self._on_wire = method, on_wire
        self.title = type(method).__name__

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._method, name)
        if not callable(called):
            return called

        def watched(*arguments: Any) -> Any:
            before = [tensor.clone() for tensor in tensors_in(arguments)]
            result = called(*arguments)
            for tensor, copy in zip(tensors_in(arguments), before, strict=True):
                require(torch.equal(tensor, copy), f"{name} changed an argument")
            for tensor in tensors_in(result):
                require(bool(torch.isfinite(tensor).all()), f"{name} returned a value that is not finite")
            if name == "server_down":
                return self._on_wire(result)
            return (result[0], self._on_wire(result[1])) if name == "client_step" else result

        return watched
