"""Messages on their way through the codecs of a run, and what both ends remember for that.

All of it is kept in an actor's one state. Streams are keyed by the actor and by the number of its message, so that
nothing depends on who shares a process, or on what was evaluated.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from torch import Tensor

from pflsim.coding.direction import Base, Coded, Made, Sent, candidates, restored
from pflsim.errors import RunFailed
from pflsim.federation import Tensors
from pflsim.kept import NOT_KEPT
from pflsim.messages.wire import SERVER, Message
from pflsim.rng import stream
from pflsim.study import Study


@dataclass
class Told:
    """What a server remembers of what went down."""

    known: dict[int, tuple[int, Tensors]] = field(default_factory=dict)
    """By client: the number of the last work that it is known to have, and what came with it."""
    made: Made = field(default_factory=dict, metadata=NOT_KEPT)
    """What was encoded for `version`, for whoever is sent the same tensor; never for a round before."""
    version: tuple[int, int] = (-1, -1)
    """The round, and how often the model had changed."""


@dataclass
class Exchanged:
    """What a peer remembers of what it has exchanged."""

    messages: int = 0
    """So many times it has encoded something."""
    told: dict[int, tuple[int, Tensors]] = field(default_factory=dict)
    """By neighbour: how many messages it was sent, and what it has of the last."""
    heard: dict[int, tuple[int, Tensors]] = field(default_factory=dict)
    """By neighbour: how many messages have come of it, and what the last said."""


def sent_down(study: Study, told: Told, client: int, down: Tensors, version: tuple[int, int], work_id: int) -> Sent:
    """How `down` travels to a client. The same tensor for several clients is encoded once a version of the model."""
    direction = study.codecs.down
    if direction is None:
        return Sent(down, {}, down, {})
    draws = partial(_draws, study, SERVER, work_id)
    if direction.delta:
        sent = direction.sent(down, draws, _last(told.known.get(client)))
        if not any(coded.base for coded in sent.coded.values()):
            told.known.pop(client, None)  # the client forgets what no message refers to
        return sent
    if told.version != version:
        told.made, told.version = {}, version
    return direction.sent(down, draws, made=told.made)


def would_be_seen(study: Study, told: Told, made: Made, client: int, down: Tensors, round: int) -> Tensors:
    """What a client would have of `down` if it were sent now, which it is not."""
    direction = study.codecs.down
    if direction is None:
        return down
    draws = partial(_draws, study, "evaluation", round * len(study.names) + client)
    if direction.delta:
        return direction.sent(down, draws, _last(told.known.get(client))).seen
    return direction.sent(down, draws, made=made).seen


def has_come_down(study: Study, told: Told, client: int, work_id: int, down: Tensors) -> None:
    """A client has answered this work, so that it has what came with it."""
    if study.codecs.down is not None and study.codecs.down.delta:
        told.known[client] = work_id, down


def take_down(study: Study, name: str, received: dict[int, Tensors], message: Message) -> None:
    """Make what came down whole, and remember it as long as the server may refer to it: until it refers to later."""
    if study.codecs.down is None or not study.codecs.down.delta:
        return
    _make_whole(message, name, lambda tensor, coded: received.get(coded.base, {}).get(tensor))
    base = max((coded.base for coded in message.coded.values()), default=0)
    for older in [work_id for work_id in received if work_id != base]:
        del received[older]
    received[message.work_id] = message.tensors


def sent_up(study: Study, number: int, attempt: int, residuals: Tensors, up: Tensors, down: Tensors) -> Sent:
    """How an answer to `down` travels, with what earlier ones have left out."""
    direction = study.codecs.up
    if direction is None:
        return Sent(up, {}, up, residuals)

    def bases(name: str, tensor: Tensor) -> list[Base]:
        return [(0, tensor), *candidates(down, tuple(tensor.shape))]

    draws = partial(_draws, study, study.names[number], attempt)
    return direction.sent(up, draws, bases if direction.delta else None, residuals)


def take_up(name: str, message: Message, down: Tensors) -> None:
    """Make an answer to `down` whole."""
    _make_whole(message, name, lambda _, coded: dict(candidates(down, coded.shape)).get(coded.base))


def sent_to_peers(study: Study, name: str, kept: Exchanged, shown: Tensors, to: Iterable[int]) -> Iterator[Sent]:
    """How a model travels to each of these neighbours, in their order; encoded once if it is the same for all."""
    direction, made = study.codecs.peer, Made()
    for other in to:
        if direction is None:
            yield Sent(shown, {}, shown, {})
            continue
        kept.messages += 1
        draws = partial(_draws, study, name, kept.messages)
        if not direction.delta:
            yield direction.sent(shown, draws, made=made)
            continue
        sent = direction.sent(shown, draws, _last(kept.told.get(other)))
        kept.told[other] = kept.told.get(other, (0, {}))[0] + 1, sent.seen
        yield sent


def take_from_peer(study: Study, name: str, kept: Exchanged, message: Message) -> None:
    """Make what a neighbour has shown whole, and remember it: the next may be a difference to it."""
    if study.codecs.peer is None or not study.codecs.peer.delta or not message.tensors:
        return
    other = study.number_of[message.sender]
    count, last = kept.heard.get(other, (0, {}))
    _make_whole(message, name, lambda tensor, coded: last.get(tensor) if coded.base == count else None)
    kept.heard[other] = count + 1, message.tensors


def _last(known: tuple[int, Tensors] | None) -> Callable[[str, Tensor], list[Base]]:
    """The one base of each tensor: what the receiver has of it."""

    def bases(name: str, tensor: Tensor) -> list[Base]:
        base = None if known is None else known[1].get(name)
        is_same = base is not None and base.shape == tensor.shape and base.dtype == tensor.dtype
        return [(known[0], base)] if known is not None and base is not None and is_same else []

    return bases


def _draws(study: Study, actor: str, number: int, name: str) -> np.random.Generator:
    return stream(study.federation.seed, "codec", actor, number, name)


def _make_whole(message: Message, name: str, base_of: Callable[[str, Coded], Tensor | None]) -> None:
    try:
        message.tensors = restored(message.tensors, message.coded, base_of)
    except LookupError as problem:
        raise RunFailed(name, f"cannot read the {message.kind} of {message.sender}: {problem.args[0]}") from problem
