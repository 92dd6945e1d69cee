"""The values that a run description may hold: those that TOML has, finite, and without dates."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal

from pflsim.errors import DescriptionError

MOST = 1e30
"""No number may be larger: models are float32, which ends at 3.4e38, and what is worked out from it must fit too."""

Level = Literal["debug", "info", "warning", "error"]
"""How much processes log."""

DEEPEST = 20
"""So many tables or lists may stand in one another."""


def plain(value: Any, key: str = "", depth: int = 0) -> Any:
    """`value` as dicts, lists, text, numbers, booleans and None, whatever kinds of mappings and numbers it is made of.

    Raises DescriptionError, with the dotted key, for anything else: a date, a path, `nan`, more than 64 bits. Only
    rates and speeds (under `links` and `devices`) may be infinite.
    """
    if isinstance(value, Mapping | list | tuple) and depth > DEEPEST:
        raise DescriptionError(key, "...", f"nests tables deeper than {DEEPEST}")
    if isinstance(value, Mapping):
        inner = {_name(name, key): inside for name, inside in value.items()}
        return {name: plain(inside, f"{key}.{name}".removeprefix("."), depth + 1) for name, inside in inner.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, f"{key}.{position}", depth + 1) for position, inner in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, key)
    if isinstance(value, Integral):
        return _whole(int(value), key)
    if isinstance(value, Real):
        return _number(float(value), key)
    kinds = f"must be text, a number, true or false, a list or a table, not a {type(value).__name__}"
    raise DescriptionError(key, value, kinds)


def _name(name: object, key: str) -> str:
    if not isinstance(name, str):
        raise DescriptionError(key or "the description", name, "must have text for its keys")
    return _text(name, key or "the description")


def _text(text: str, key: str) -> str:
    if "\0" in text or text != text.encode(errors="replace").decode():
        raise DescriptionError(key, text, "must be text in Unicode, without zero characters")
    return text


def _whole(number: int, key: str) -> int:
    if not -(2**63) <= number < 2**63:
        raise DescriptionError(key, number, "must be a whole number of at most 64 bits")
    return number


def _number(number: float, key: str) -> float:
    is_endless_rate = number == math.inf and key.startswith(("links.", "devices."))
    if not (abs(number) <= MOST or is_endless_rate):
        raise DescriptionError(key, number, f"must be a finite number, at most {MOST:g} in size")
    return number
