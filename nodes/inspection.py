"""What a message must hold that comes over a network, beyond being well formed: who may say what, and in which shape.

A process that has the keys of a run may still be wrong, or mean ill. What it cannot have sent if it follows the run is
refused before anybody uses it, so that it counts as dropped and as never sent: who waits for it goes on waiting, until
`run.patience_s` and `run.on_loss` decide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pflsim.errors import BadMessage
from pflsim.federation import Tensors
from pflsim.messages import wire
from pflsim.messages.wire import COORDINATOR, SERVER, Message
from pflsim.study import Study

DIGEST_BYTES = 32
MOST_COUNT = 1 << 53
"""Of samples, rounds and messages; beyond, floats do not count any more."""

Signature = dict[str, tuple[str, tuple[int, ...]]]


@dataclass
class Inspection:
    """Raises BadMessage, naming the message, for what no actor of this study sends to `actor`."""

    study: Study
    actor: str
    _signatures: dict[str, Signature] = field(default_factory=dict)
    _models: dict[int, list[str]] = field(default_factory=dict)
    """By client: what is evaluated there."""

    def __call__(self, message: Message) -> None:
        """Look at `message`, whose tensors are unpacked."""
        try:
            self._require_sender(message)
            if message.kind in _FACTS:
                _FACTS[message.kind](self.study, message)
            varies = getattr(self.study.method, "varies", False)
            if message.kind == wire.EVAL_RESULT and not varies:
                self._require_models(message)
            if message.kind in (wire.RESULT, wire.PUSH, wire.PAIR, wire.PAIRED):
                self._require_rounds(message)
                if not varies:
                    self._require_signature(message)
            elif message.tensors and self.actor in (SERVER, COORDINATOR):
                raise BadMessage(f"a {message.kind} has no tensors")
        except BadMessage as problem:
            problem.message = message
            raise

    def _require_sender(self, message: Message) -> None:
        """Questions and orders come from the hub, and models from neighbours."""
        study = self.study
        if self.actor == study.hub:
            return
        if message.kind in wire.ONLY_OF_THE_HUB and message.sender != study.hub:
            raise BadMessage(f"a {message.kind} comes from the {study.hub} only")
        if message.kind not in wire.ONLY_OF_THE_HUB:
            linked = study.linked(study.number_of[self.actor])
            if study.number_of.get(message.sender) not in linked:
                raise BadMessage(f"{message.sender} is no neighbour of {self.actor}")

    def _require_rounds(self, message: Message) -> None:
        if not 1 <= message.round <= self.study.rounds:
            raise BadMessage(f"a {message.kind} of round {message.round}, of 1 to {self.study.rounds}")
        most = len(self.study.data.partition.parts[self.study.number_of[message.sender]].train)
        if message.samples > most:
            raise BadMessage(f"a {message.kind} from {message.samples} samples of {most}")

    def _require_models(self, message: Message) -> None:
        """A client that named other models would decide which of them is the headline."""
        client = self.study.number_of[message.sender]
        if client not in self._models:
            self._models[client] = self.study.first_models(client)
        if list(message.facts) != self._models[client]:
            raise BadMessage(f"{_shown(list(message.facts))} are evaluated, {self._models[client]} are expected")

    def _require_signature(self, message: Message) -> None:
        """The names, types and shapes that this sender's tensors have in all rounds; raw and unpacked alike."""
        expected = self._signatures.get(message.sender)
        if expected is None:
            client = self.study.number_of[message.sender]
            first = self.study.first_shown(client) if self.study.is_for_peers else self.study.first_up(client)
            expected = self._signatures[message.sender] = _signature(first)
        came = _signature(message.tensors)
        if came != expected:
            raise BadMessage(f"{_in_words(came, expected)} came, {_in_words(expected, came)} is expected")


def _signature(tensors: Tensors) -> Signature:
    return {name: (wire.DTYPE_NAMES[one.dtype], tuple(one.shape)) for name, one in tensors.items()}


def _in_words(one: Signature, other: Signature) -> str:
    """What is in one and not in the other."""
    told = [f"{name!r:.40} {dtype} {list(shape)}" for name, (dtype, shape) in one.items()]
    differ = [words for words, (name, what) in zip(told, one.items(), strict=True) if other.get(name) != what]
    return ", ".join(differ[:3]) or "nothing else"


def _loss(study: Study, message: Message) -> None:
    told, takes = message.facts, study.cohorts.needs_losses or message.kind == wire.LOSS
    if not told.keys() <= ({"loss"} if takes else set()) or not isinstance(told.get("loss", 0.0), float):
        raise BadMessage(f"a {message.kind} tells {_shown(told)}, where at most a loss is expected")
    if message.kind == wire.RESULT and study.cohorts.needs_losses and "loss" not in told:
        raise BadMessage("a RESULT tells no loss")


def _evaluation(study: Study, message: Message) -> None:
    for model, splits in message.facts.items():
        if not isinstance(splits, dict) or splits.keys() != set(study.evaluated_splits):
            raise BadMessage(f"an evaluation of {model!r:.40} on {_shown(splits)}")
        for scores in splits.values():
            if not _is_score(scores):
                raise BadMessage(f"an evaluation says {_shown(scores)}, which is no [correct, total, loss]")


def _is_score(scores: Any) -> bool:
    if not isinstance(scores, list) or len(scores) != 3:
        return False
    correct, total, loss = scores
    is_share = type(correct) is int and type(total) is int and 0 <= correct <= total < MOST_COUNT
    return is_share and isinstance(loss, float | int)


def _last_words(study: Study, message: Message) -> None:
    digests = [message.facts.get(which) for which in ("digest", "trace")]
    if any(not isinstance(one, bytes) or len(one) != DIGEST_BYTES for one in digests):
        raise BadMessage("the last words are no two digests")


def _joining(study: Study, message: Message) -> None:
    place: Any = message.facts.get("place")
    is_place = isinstance(place, list) and len(place) == 2 and all(isinstance(part, str) for part in place)
    if study.is_for_peers and not (is_place and place[1].startswith(("tcp://", "ipc://"))):
        raise BadMessage(f"{message.sender} says that it is at {_shown(place)}")


def _finished(study: Study, message: Message) -> None:
    rounds, sent = message.facts.get("rounds"), message.facts.get("sent")
    is_known = isinstance(sent, dict) and sent.keys() <= study.number_of.keys() and all(map(_is_count, sent.values()))
    is_possible = isinstance(rounds, int) and 0 <= rounds <= study.rounds
    if not (is_possible and is_known and isinstance(message.facts.get("stopped"), str)):
        raise BadMessage(f"{message.sender} ends with {_shown(message.facts)}")


def _is_count(number: Any) -> bool:
    return type(number) is int and 0 <= number < MOST_COUNT


def _shown(value: Any) -> str:
    return f"{value!r:.60}"


_FACTS: Mapping[str, Callable[[Study, Message], None]] = {
    wire.RESULT: _loss,
    wire.LOSS: _loss,
    wire.EVAL_RESULT: _evaluation,
    wire.STATE: _last_words,
    wire.JOIN: _joining,
    wire.FINISHED: _finished,
}
