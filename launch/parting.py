"""What the launcher does about who is lost in a run that goes on without them (`run.on_loss = "continue"`).

It sees processes end and machines fall silent, and tells the server or the coordinator. A server also finds out by
itself who does not answer; the launcher learns of those by the record, and does not wait for them at the end.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgpack
import zmq

from launch.recorder import Recorder


class Parting:
    """Who leaves the run, and how the server hears of it."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, recorder: Recorder) -> None:
        """The server will listen at `endpoint`; what is said before is kept for it."""
        self.endpoint = endpoint
        self._socket = context.socket(zmq.PUSH)
        self._socket.linger = 0
        self._socket.set_hwm(0)
        self._socket.connect(endpoint)
        self._recorder = recorder
        self._actors: Mapping[str, tuple[str, ...]] = {}

    def expect(self, actors: Mapping[str, tuple[str, ...]]) -> None:
        """These clients run, by process."""
        self._actors = actors

    def tell(self, processes: Iterable[str], reason: str) -> None:
        """These processes are lost, with all clients that run there."""
        lost = [actor for process in processes for actor in self._actors.get(process, ())]
        self._socket.send(msgpack.packb([lost, reason]))

    @property
    def processes(self) -> frozenset[str]:
        """Those in which somebody runs of whom the server has said that it is lost; they need not end by themselves."""
        lost = self._recorder.lost
        return frozenset(process for process, actors in self._actors.items() if not lost.keys().isdisjoint(actors))


def facts_of_loss(lost: Mapping[str, str]) -> dict[str, Any]:
    """What the summary says of a run that has lost `lost`, by name with the reason: such a run cannot be repeated."""
    return {"repeatable": False, "lost": dict(sorted(lost.items()))} if lost else {}


def warning_of_loss(lost: Mapping[str, str], clients: int) -> list[str]:
    """The same for people."""
    if not lost:
        return []
    first = [f"{name} ({reason})" for name, reason in sorted(lost.items())]
    shown = ", ".join(first[:3]) + (f" and {len(first) - 3} more" if len(first) > 3 else "")
    told = f"{clients - len(lost)} of {clients} clients to the end: lost {shown}"
    return [f"{told}. When somebody is lost is chance, so this run cannot be repeated (repeatable: false)"]
