"""Finds what a run description names: a file of a room, or a user's own, see `pflsim.outside`.

Each file of a room (`algorithms`, `models`, `datasets`, `partitions`, `schedules`, `samplings`, `topologies`,
`codecs`) defines one public function or class. Its name in a description is the file's name (`-` and `_` are the same);
its settings are the keyword parameters of that function, or the fields of that dataclass. Nothing is registered
anywhere.
"""

import difflib
import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import pydantic

from pflsim import outside
from pflsim.errors import DescriptionError, PflsimError

OWN = 'or your own "file.py:Name" or "package.module:Name"'

_GIVEN: dict[str, tuple[str, ...]] = {
    "models": ("shape", "classes"),
    "datasets": ("directory",),
    "partitions": ("pool", "clients", "rng"),
    "topologies": ("labels", "sizes", "rng"),
    "devices": ("of",),
}
"""What a function of a room is given before its settings, which are keyword-only."""

ROOMS = ("algorithms", "models", "datasets", "partitions", "schedules", "samplings", "topologies", "codecs")


def names(room: str) -> list[str]:
    """The names that a room offers, sorted, as a run description writes them."""
    package = importlib.import_module(f"pflsim.{room}")
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(package.__path__))


def near_match(word: str, known: list[str]) -> str:
    """The tail of an error message: what is known, and what was probably meant."""
    if not known:
        return "there are none"
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return f"known are {', '.join(known)}{meant}"


def find(room: str, name: str, key: str) -> Callable[..., Any]:
    """The function or class that `name` stands for; `key` is where the description says so, for the error."""
    if ":" in name:
        return outsider(name, key, _GIVEN.get(room))
    if name.replace("_", "-") not in names(room):
        raise DescriptionError(key, name, f"{near_match(name, names(room))} ({OWN})")
    module = importlib.import_module(f"pflsim.{room}.{name.replace('-', '_')}")
    public = [
        value
        for attribute, value in vars(module).items()
        if not attribute.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    if len(public) != 1:
        raise AssertionError(f"{module.__name__} must define one public name, not {len(public)}")
    found: Callable[..., Any] = public[0]
    return found


def outsider(name: str, key: str, given: tuple[str, ...] | None = None) -> Callable[..., Any]:
    """A user's own function or class; one that is `given` arguments must take them before its settings."""
    loaded = outside.load(name, key)
    if not callable(loaded):
        raise DescriptionError(key, name, f"must name a function or a class, not a {type(loaded).__name__}")
    found: Callable[..., Any] = loaded
    try:
        settings_of(found), _hints(found)
    except Exception as problem:
        reason = "must name a function or a class whose parameters can be told, with types that can be read"
        raise DescriptionError(key, name, f"{reason} ({outside.told(problem)})") from problem
    if given is not None:
        _require_parameters(found, key, name, given)
    return found


def _require_parameters(found: Callable[..., Any], key: str, name: str, given: tuple[str, ...]) -> None:
    """Refuses what cannot be called with the arguments `given`, in this order, and its settings by keyword."""
    parameters = inspect.signature(found).parameters.values()
    settings = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
    also_round = (*given, "round") if any(p.name == "round" for p in parameters) else given
    try:
        inspect.signature(found).bind(*also_round, **settings)
    except TypeError as problem:
        wanted = f"({', '.join(given)}) and its settings after a *"
        raise DescriptionError(key, name, f"must take {wanted}, but is {_signature(found)}") from problem


def _signature(found: Callable[..., Any]) -> str:
    parameters = inspect.signature(found).parameters.values()
    bare = [p.replace(annotation=p.empty) for p in parameters]
    return f"{getattr(found, '__name__', 'a function')}{inspect.Signature(bare)}"


def made(
    found: Callable[..., Any], key: str, name: str, kind: type | tuple[type, ...], *given: object, **settings: object
) -> Any:
    """What the part that `name` stands for at `key` makes of `given` and its settings.

    Raises DescriptionError where it raises something itself, or makes something that is not of `kind`.
    """
    try:
        result = found(*given, **settings)
    except PflsimError:
        raise
    except Exception as problem:
        raise DescriptionError(key, name, f"cannot be built: {outside.told(problem)}") from problem
    if not isinstance(result, kind):
        kinds = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise DescriptionError(key, name, f"must make a {kinds}, not a {type(result).__name__}")
    return result


def settings_of(found: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword settings that a function or dataclass takes, by name."""
    parameters = inspect.signature(found).parameters.values()
    keyword_only = not inspect.isclass(found)
    return {p.name: p for p in parameters if not keyword_only or p.kind is inspect.Parameter.KEYWORD_ONLY}


def validated(found: Callable[..., Any], given: Mapping[str, object], key: str) -> dict[str, Any]:
    """`given`, checked by the types of `found`'s settings; refuses unknown keys and wrong values.

    A whole number will do for a float, and a list for a tuple; nothing else is converted.
    """
    known = settings_of(found)
    for name, value in given.items():
        if name not in known:
            raise DescriptionError(f"{key}.{name}", value, f"unknown key; {near_match(name, sorted(known))}")
    hints = _hints(found)
    settings = {}
    for name, parameter in known.items():
        if name not in given:
            if parameter.default is inspect.Parameter.empty:
                raise DescriptionError(f"{key}.{name}", None, "is required")
            settings[name] = parameter.default
            continue
        try:
            value = json.dumps(given[name])  # as JSON: see `pflsim.spec.validate`
            settings[name] = pydantic.TypeAdapter(hints.get(name, Any)).validate_json(value, strict=True)
        except pydantic.ValidationError as problem:
            reason = "; ".join(error["msg"].lower() for error in problem.errors())
            raise DescriptionError(f"{key}.{name}", given[name], reason) from problem
    return settings


def _hints(found: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(found.__init__ if inspect.isclass(found) else found)
