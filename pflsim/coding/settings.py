"""`[codec]`: how messages travel in fewer bytes, for each direction; what has no meaning is refused here.

    codec = { up = "int8", down = "none" }

    [codec.up]
    name = "top-k"             # a file of `pflsim/codecs`, and its settings
    share = 0.01
    tensors = ["u"]            # only these; all that are float32 and not small where none are named
    error_feedback = true      # what a message leaves out is added to the next one
    delta = true               # the difference to what the receiver has travels
    zstd = true                # frames are compressed without loss

Directions are `up` and `down`, and among peers `peer`. Encoding and decoding cost no simulated time. A difference is
one to what came down, if it goes up (to that of its tensors, or to the rows of one, which is the nearest, or to nothing
where nothing is nearer: for methods whose answer is a difference already); else to the last message that the receiver
is known to have, and the first one travels as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from torch import Tensor

from pflsim import catalogue
from pflsim.coding.codec import Codec, Shapes, missing
from pflsim.coding.direction import LEAST, MOST_GROWTH, Direction
from pflsim.errors import DescriptionError

Example = Callable[[], Mapping[str, Tensor]]

DIRECTIONS = ("up", "down", "peer")
_MANY = 1 << 24
_MOST_SMALL = 1 << 16


@dataclass(frozen=True)
class _Common:
    """What holds for every codec."""

    tensors: tuple[str, ...] = ()
    error_feedback: bool = False
    delta: bool = False
    zstd: bool = False


_COMMON = tuple(field.name for field in fields(_Common))


@dataclass(frozen=True)
class Codecs:
    """How messages travel; None for a direction in which they travel as they are."""

    up: Direction | None = None
    down: Direction | None = None
    peer: Direction | None = None

    def __bool__(self) -> bool:
        return any((self.up, self.down, self.peer))

    def between(self, sender: str, receiver: str) -> Direction | None:
        """How messages travel from one actor to another."""
        return self.down if sender == "server" else self.up if receiver == "server" else self.peer


def load(tables: Mapping[str, Any] | None, *, is_for_peers: bool, method: str) -> Codecs:
    """The codecs that a description names. Raises DescriptionError for what cannot be, or has no meaning."""
    found: dict[str, Direction] = {}
    for given, table in (tables or {}).items():
        key = f"codec.{given}"
        if given not in DIRECTIONS:
            raise DescriptionError(key, table, f"unknown direction; {catalogue.near_match(given, list(DIRECTIONS))}")
        direction = "peer" if is_for_peers and given == "up" else given
        if is_for_peers and direction == "down":
            raise DescriptionError(key, table, f"{method} has no server that sends anything down; use codec.peer")
        if not is_for_peers and direction == "peer":
            raise DescriptionError(key, table, f"{method} has a server, and no peers; use codec.up and codec.down")
        if direction in found:
            raise DescriptionError("codec.up, codec.peer", table, "are the same among peers: give one of the two")
        made = _direction(key, table)
        _require_sense(key, direction, made)
        if (made.name, made.zstd, made.delta) != ("none", False, False):
            found[direction] = made
    return Codecs(**found)


def fitted(
    codecs: Codecs, first: Mapping[str, Callable[[], Mapping[str, Tensor]]], layouts: Sequence[Shapes]
) -> Codecs:
    """The same, for a run in which `first` gives an example of each direction's messages.

    Raises DescriptionError if it lacks tensors that are named.
    """
    in_use = {name: direction for name in DIRECTIONS if (direction := getattr(codecs, name)) is not None}
    return Codecs(**{name: _fitted(direction, first[name](), layouts) for name, direction in in_use.items()})


def _fitted(direction: Direction, first: Mapping[str, Tensor], layouts: Sequence[Shapes]) -> Direction:
    key, named = f"{direction.key}.tensors", list(direction.tensors)
    for name in direction.tensors:
        if name not in first:
            raise DescriptionError(key, named, f"{name!r} does not travel; {catalogue.near_match(name, sorted(first))}")
        if not direction.applies(name, first[name]):
            reason = f"{name!r} travels as it is: only float32 with at least {LEAST} numbers is encoded"
            raise DescriptionError(key, named, reason)
    largest = max((tensor.numel() for tensor in first.values()), default=0)
    most = max(MOST_GROWTH * largest, _MOST_SMALL)
    return replace(direction, layouts=tuple(dict.fromkeys(layouts)), most_numbers=most)


def require_references(codecs: Codecs, *, forgets: bool, loses: bool) -> None:
    """A difference to the last message needs a receiver that has it, and a sender that knows.

    `forgets`: whether somebody may lose its state; `loses`: whether a message between peers may never arrive.
    """
    for direction in (codecs.down, codecs.peer):
        if direction is None or not direction.delta:
            continue
        if forgets:
            reason = "who crashes with keeps_state = false loses what a difference is to, and its sender cannot know"
            raise DescriptionError(f"{direction.key}.delta", True, reason)
        if direction is codecs.peer and loses:
            reason = "a message between peers may be lost, nobody tells its sender, and the next is a difference to it"
            raise DescriptionError(f"{direction.key}.delta", True, reason)


def remarks(codecs: Codecs) -> list[str]:
    """What is allowed and worth a warning."""
    up = codecs.up
    if up is None or up.delta or not up.codec.differences_only:
        return []
    reason = "what is left out arrives as 0, which is right only where the method sends differences"
    return [f"codec.up: {up.name} without delta = true: {reason}"]


def resolved(tables: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tables with all defaults."""
    out = {}
    for given, table in (tables or {}).items():
        common, found, own = _parted(f"codec.{given}", table)
        out[given] = {"name": _named(table)} | catalogue.validated(found, own, f"codec.{given}") | asdict(common)
    return out


def _named(table: Any) -> str:
    return str(table if isinstance(table, str) else table.get("name", "none"))


def _parted(key: str, table: Any) -> tuple[_Common, Callable[..., Any], dict[str, Any]]:
    """What holds for every codec, the codec that is named, and its own settings."""
    given = {"name": table} if isinstance(table, str) else dict(table)
    name = given.pop("name", None)
    if not isinstance(name, str):
        expected = "is required" if name is None else "must be the name of a codec"
        raise DescriptionError(f"{key}.name", name, expected)
    found = catalogue.find("codecs", name, f"{key}.name")
    if lacks := missing(found):
        expected = f"has no {', '.join(lacks)}; pflsim/coding/codec.py tells what a codec must have"
        raise DescriptionError(f"{key}.name", name, expected)
    own = {setting: value for setting, value in given.items() if setting not in _COMMON}
    for setting in own:
        if setting not in (known := catalogue.settings_of(found)):
            near = catalogue.near_match(setting, sorted([*known, *_COMMON]))
            raise DescriptionError(f"{key}.{setting}", own[setting], f"unknown key; {near}")
    shared = {setting: value for setting, value in given.items() if setting in _COMMON}
    return _Common(**catalogue.validated(_Common, shared, key)), found, own


def _direction(key: str, table: Any) -> Direction:
    common, found, own = _parted(key, table)
    try:
        codec: Codec = catalogue.made(
            found, f"{key}.name", _named(table), object, **catalogue.validated(found, own, key)
        )
    except DescriptionError as problem:  # a codec does not know for which direction it is
        own_key = problem.key.removeprefix(key if problem.key.startswith(key) else "codec")
        raise DescriptionError(key + own_key, problem.value, problem.expected) from problem
    return Direction(key, _named(table).replace("_", "-"), codec, **asdict(common))


def _require_sense(key: str, direction: str, made: Direction) -> None:
    """Refuse what would carry errors over that grow, twice, or not at all."""
    goes_up, grows = direction == "up", made.codec.variance(_MANY) >= 1
    if made.error_feedback and not goes_up:
        reason = "is for codec.up: what goes down or to peers is a model, not a difference that could be made up for"
        raise DescriptionError(f"{key}.error_feedback", True, f"{reason} later; delta = true carries over what is left")
    if made.error_feedback and made.name == "none":
        raise DescriptionError(f"{key}.error_feedback", True, "has nothing to carry over: none leaves nothing out")
    if grows and (made.error_feedback or (made.delta and not goes_up)):
        setting = "error_feedback" if made.error_feedback else "delta"
        reason = f"{made.name} may add more than it leaves out (omega = {made.codec.variance(_MANY):.3g} must be below"
        mend = "scaled = false" if made.name == "random-k" else "a smaller chunk or more bits"
        raise DescriptionError(f"{key}.{setting}", True, f"{reason} 1), so that the error grows: {mend}")
    if made.codec.differences_only and not made.delta and not goes_up:
        reason = f"by {made.name} a model arrives as something else: only a difference may travel so, delta = true"
        raise DescriptionError(f"{key}.name", made.name, reason)
