"""What an actor has done in simulated time, as facts for the record and as a chain of hashes.

A process may work ahead of the moment as of which others see it. Where work can be cancelled, what was done since a
mark is kept back, and can be undone from any moment on, as if it had stopped then.
"""

from collections import deque
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgpack

_REMEMBERED = 1024
"""So many of the last events are remembered: more than one piece of work has, or than a peer can be ahead by."""


class Recorder(Protocol):
    """Takes facts about the run; see `pflsim.record.database` for their tables."""

    def tell(self, *fact: Any) -> None:
        """Keep one fact, (table, values...)."""

    def flush(self) -> None:
        """Let the facts told so far be seen."""


class _Event(NamedTuple):
    at_ns: int
    chain: bytes
    charged_bytes: int


class Journal:
    """The events of the actor `name`, in the order in which they happen to it."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self._recorder = recorder
        self._events = deque([_Event(0, sha256(name.encode()).digest(), 0)], maxlen=_REMEMBERED)
        self._marked: _Event | None = None
        self._kept_back: list[tuple[Any, ...]] = []

    @property
    def charged_bytes(self) -> int:
        """What the method is charged for so far: headers and payload that this actor sent or received."""
        return self._events[-1].charged_bytes

    def event(
        self, at_ns: int, what: str, kind: str = "", other: str = "", sequence: int = 0, charged: int = 0
    ) -> None:
        """Something has happened, and has cost the method so many bytes."""
        last = self._events[-1]
        packed: bytes = msgpack.packb((what, kind, other, sequence, at_ns))
        self._events.append(_Event(at_ns, sha256(last.chain + packed).digest(), last.charged_bytes + charged))

    def tell(self, *fact: Any) -> None:
        """Keep a fact about what was done."""
        if self._marked is None:
            self._recorder.tell(*fact)
        else:
            self._kept_back.append(fact)

    def as_of(self, now_ns: int) -> bytes:
        """The sha256 chain over the events up to and at `now_ns`, which may lie as far back as one piece of work."""
        return next(event.chain for event in reversed(self._events) if event.at_ns <= now_ns)

    def mark(self) -> None:
        """What is done from now on may have to be undone."""
        self._marked = self._events[-1]

    def release(self) -> None:
        """It will not be undone."""
        self._marked = None
        for fact in self._kept_back:
            self._recorder.tell(*fact)
        self._kept_back = []

    def undo(self, from_ns: int) -> None:
        """Nothing of what was done since the mark was done at `from_ns` or later."""
        while self._events[-1] is not self._marked and self._events[-1].at_ns >= from_ns:
            self._events.pop()
        stopped_ns = max(from_ns, self._events[-1].at_ns)
        self._kept_back = [kept for fact in self._kept_back if (kept := _cut(fact, stopped_ns)) is not None]
        self.release()

    def kept(self) -> dict[str, Any]:
        """What `restore` needs."""
        place = next((at for at, event in enumerate(self._events) if event is self._marked), None)
        marked = None if self._marked is None else tuple(self._marked)
        events = [tuple(event) for event in self._events]
        return {"events": events, "place": place, "marked": marked, "kept_back": self._kept_back}

    def restore(self, kept: Mapping[str, Any], recorder: Recorder) -> None:
        """Go on from where `kept` was told, and tell `recorder` from now on."""
        self._recorder, self._kept_back = recorder, list(kept["kept_back"])
        self._events = deque((_Event(*one) for one in kept["events"]), maxlen=_REMEMBERED)
        if kept["place"] is not None:
            self._marked = self._events[kept["place"]]
        else:  # it may be so long ago that it is no longer among them
            self._marked = None if kept["marked"] is None else _Event(*kept["marked"])


def _cut(fact: tuple[Any, ...], from_ns: int) -> tuple[Any, ...] | None:
    """What is left of a fact: a span ends earlier or is gone, nothing of a message has left, and no work is done."""
    if fact[0] == "measures" or (fact[0] == "uncoded" and fact[-1] >= from_ns):
        return None
    if fact[0] == "spans":
        _, actor, _, start_ns, end_ns, round = fact
        if start_ns >= from_ns:
            return None
        return fact if end_ns <= from_ns else ("spans", actor, "cancelled", start_ns, from_ns, round)
    if fact[0] == "sent" and fact[-1] >= from_ns:
        *route, _, _, _, _ = fact
        return (*route, 0, 0, 0, from_ns)
    return fact
