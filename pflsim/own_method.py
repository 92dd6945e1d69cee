"""A method from a user's own file, whose every part says which it is when it raises, or returns what it must not."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pflsim import outside
from pflsim.errors import DescriptionError, PflsimError
from pflsim.learning.task import Work


def guarded(found: type, name: str) -> type:
    """A subclass of the method `found` that raises DescriptionError, with `name`, for what goes wrong in its parts.

    The error's cause is what was raised, with the stack of the user's code alone.
    """
    parts = {
        part: _guard(part, getattr(found, part), rule, name) for part, rule in _RULES.items() if hasattr(found, part)
    }
    return type(found.__name__, (found,), parts | {"__module__": found.__module__, "__doc__": found.__doc__})


def _guard(part: str, function: Callable[..., Any], rule: Callable[..., str], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(self: Any, *given: Any, **named: Any) -> Any:
        try:
            result = getattr(super(type(self), self), part)(*given, **named)
        except PflsimError:
            raise
        except (Exception, SystemExit) as problem:
            own = problem.with_traceback(problem.__traceback__ and problem.__traceback__.tb_next)
            raise DescriptionError("algorithm.name", name, f"{part} raised {outside.told(own)}") from own
        if wrong := rule(result, *given):
            raise DescriptionError("algorithm.name", name, f"{part} must return {wrong}")
        return result

    return called


def _tensors(result: Any, *_: Any) -> str:
    """What is wrong with a state: it must be a dictionary of tensors."""
    if not isinstance(result, Mapping):
        return f"a dictionary of tensors, not {_kind(result)}"
    other = next((key for key, value in result.items() if not isinstance(value, torch.Tensor)), None)
    return "" if other is None else f"a dictionary of tensors; {other!r} is {_kind(result[other])}"


def _pair(result: Any, *_: Any) -> str:
    if not isinstance(result, tuple) or len(result) != 2:
        return f"two dictionaries of tensors, the private state and what travels up, not {_kind(result)}"
    return next((wrong for wrong in map(_tensors, result) if wrong), "")


def _work(result: Any, *_: Any) -> str:
    return "" if isinstance(result, Work) else f"a Work, such as task.work(), not {_kind(result)}"


def _models(result: Any, *given: Any) -> str:
    if not isinstance(result, Mapping) or not result:
        return f"the models to evaluate by name, headline first, not {_kind(result)}"
    dimension = given[-1].network.layout.dimension
    for key, model in result.items():
        if isinstance(model, torch.Tensor) and (model.shape != (dimension,) or model.dtype != torch.float32):
            is_one = f"{list(model.shape)} numbers of {str(model.dtype).removeprefix('torch.')}"
            return f"models; {key!r} has {is_one}, where the model of this run has [{dimension}] of float32"
        if not isinstance(model, torch.Tensor) and not callable(model):
            return f"models; {key!r} is {_kind(model)}, neither a vector nor a function of inputs"
    return ""


def _of_kind(kind: type | tuple[type, ...], wanted: str) -> Callable[..., str]:
    return lambda result, *_: "" if isinstance(result, kind) else f"{wanted}, not {_kind(result)}"


def _kind(value: Any) -> str:
    if value is None or value == {}:
        return repr(value)
    return f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"


_RULES: dict[str, Callable[..., str]] = {
    "check": _of_kind(list, "a list of warnings, which may be empty"),
    "client_init": _tensors,
    "client_work": _work,
    "client_step": _pair,
    "client_model": _models,
    "server_init": _tensors,
    "server_down": _tensors,
    "server_step": _tensors,
    "server_arrival": _tensors,
    "server_buffer": _tensors,
    "server_work": _of_kind((int, float), "a number of FLOPs"),
    "measures": _of_kind(Mapping, "a dictionary of numbers or arrays"),
    "participants": _of_kind((list, tuple, range), "a list of clients"),
    "peer_shows": _tensors,
    "peer_step": _tensors,
}
