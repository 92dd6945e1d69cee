"""The receiver's half of a link: works out when each message under way has come in completely."""

import heapq
import math
from collections.abc import Mapping
from typing import Any

from pflsim.timing.fair_share import INSTANT_NS, SLACK, Flight, fair_level, instant

Key = tuple[str, int]  # (sender, sequence): names a message, and orders those that arrive in one nanosecond
_KEPT = ("origin_ns", "now", "waiting", "turns", "flows", "queues", "arrivals")
_Kind = tuple[float, float, bool]  # (cap, put-out rate, has it a backlog?): flows of a kind share one fate


class _Group:
    """The flows of one kind: they get the same rate, so one number tells how much their backlogs have shrunk.

    A flow's backlog (put out by its sender, not yet taken in) is its level minus `drained`; the levels are
    in a heap, so the next to catch up is on top. A group without backlogs has no levels, and `drained`
    stays 0.
    """

    __slots__ = ("drained", "kind", "levels", "members")

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.drained = 0.0
        self.members: dict[Key, None] = {}
        self.levels: list[tuple[float, Key, int]] = []  # (level, key, segment); some have left meanwhile

    def copy(self) -> "_Group":
        twin = _Group(self.kind)
        twin.drained, twin.members, twin.levels = self.drained, self.members.copy(), self.levels.copy()
        return twin

    def demand(self) -> tuple[float, int]:
        """The rate that each of them would take, and how many they are."""
        cap, slope, behind = self.kind
        return (cap if behind else slope), len(self.members)

    def gain(self, level: float) -> float:
        """How fast their backlogs shrink when nobody gets more than `level`; negative when they grow."""
        return min(self.kind[0], level) - self.kind[1]


class _Inflow:
    """All flows at one downlink as of one instant; a copy of it is how the future is tried out.

    It moves from event to event: a flow starts, the sender's rate turns, a backlog is caught up. Nothing
    happens between two events but that `drained` grows, and nothing is rounded into the state.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.origin_ns = 0  # `now` and the times in `turns` are ns since then
        self.now = 0.0
        self.waiting: list[tuple[int, Key, Flight]] = []  # heap by the first byte's time
        self.turns: list[tuple[float, Key]] = []  # heap: when the present piece of a sender's curve ends
        self.flows: dict[Key, tuple[Flight, int, _Kind, float]] = {}  # flight, segment, kind, level
        self.groups: dict[_Kind, _Group] = {}
        self.queues: dict[str, tuple[tuple[Key, Flight], ...]] = {}  # by sender of a flow: what comes after it
        self.arrivals: list[tuple[int, Key]] = []  # heap: complete, not yet taken

    def copy(self) -> "_Inflow":
        twin = _Inflow(self.rate)
        twin.origin_ns, twin.now = self.origin_ns, self.now
        twin.waiting, twin.turns = self.waiting.copy(), self.turns.copy()
        twin.flows, twin.arrivals = self.flows.copy(), self.arrivals.copy()
        twin.queues = self.queues.copy()
        twin.groups = {kind: group.copy() for kind, group in self.groups.items()}
        return twin

    def kept(self) -> dict[str, Any]:
        """What `restore` needs."""
        groups = [(one.kind, one.drained, list(one.members), one.levels) for one in self.groups.values()]
        return {name: getattr(self, name) for name in _KEPT} | {"groups": groups}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from where `kept` was told."""
        for name in _KEPT:
            setattr(self, name, kept[name])
        self.groups = {}
        for kind, drained, members, levels in kept["groups"]:
            group = self.groups[kind] = _Group(kind)
            group.drained, group.members, group.levels = drained, dict.fromkeys(members), levels

    def run(self) -> None:
        """Go on to the next arrival, and to all others of its nanosecond, and not an event further."""
        while self._step(self.arrivals[0][0] if self.arrivals else math.inf):
            pass

    def _step(self, deadline_ns: float) -> bool:
        """Go on to the next event, if there is one by `deadline_ns`."""
        if not self.flows:
            if not self.waiting or self.waiting[0][0] > deadline_ns:
                return False
            self.origin_ns, self.now = self.waiting[0][0], 0.0
        level = self._level()
        behind = [group for group in self.groups.values() if group.kind[2]]
        caught_up = [self._caught_up_at(group, level) for group in behind]
        start = float(self.waiting[0][0] - self.origin_ns) if self.waiting else math.inf
        turn = self.turns[0][0] if self.turns else math.inf
        time = min(start, turn, *caught_up)
        if time > deadline_ns - self.origin_ns:
            return False
        for group, when in zip(behind, caught_up, strict=True):
            if when <= time:
                group.drained = group.levels[0][0]  # as a sum it would miss this by a rounding error
            else:
                group.drained += group.gain(level) * (time - self.now)
        self.now = time
        self._catch_up(behind)
        self._turn()
        self._start()
        return True

    def _level(self) -> float:
        """The fair level of the present flows; who cannot keep up with its sender at it begins a backlog."""
        level = fair_level(self.rate, [group.demand() for group in self.groups.values()])
        for (cap, slope, behind), group in list(self.groups.items()):
            if not behind and slope > min(cap, level) * SLACK:
                for key in list(group.members):
                    flight, segment, _ = self._leave(key)
                    self._join(key, flight, segment, (cap, slope, True), 0.0)
        return level

    def _caught_up_at(self, group: _Group, level: float) -> float:
        """When the first of a group with backlogs has caught up with its sender."""
        while not self._counts(group.levels[0], group):
            heapq.heappop(group.levels)
        gain = group.gain(level)
        return instant(self.now + (group.levels[0][0] - group.drained) / gain) if gain > 0 else math.inf

    def _catch_up(self, behind: list[_Group]) -> None:
        for group in behind:
            while group.levels and group.levels[0][0] <= group.drained:
                entry = heapq.heappop(group.levels)
                if self._counts(entry, group):
                    key = entry[1]
                    flight, segment, _ = self._leave(key)
                    self._continue(key, flight, segment, 0.0)

    def _turn(self) -> None:
        while self.turns and self.turns[0][0] <= self.now:
            _, key = heapq.heappop(self.turns)
            flight, segment, backlog = self._leave(key)
            self._enter(key, flight, segment + 1, backlog)

    def _start(self) -> None:
        while self.waiting and self.waiting[0][0] - self.origin_ns <= self.now:
            _, key, flight = heapq.heappop(self.waiting)
            queue = self.queues.get(key[0])
            self.queues[key[0]] = () if queue is None else (*queue, (key, flight))
            if queue is None:
                self._enter(key, flight, 0, 0.0)

    def take_turn(self, key: Key, flight: Flight) -> None:
        """Let in what began before now, but after its sender's message before it, which is not in or just is."""
        queue = self.queues.get(key[0])
        self.queues[key[0]] = () if queue is None else (*queue, (key, flight))
        if queue is None:
            self._enter(key, flight, 0, 0.0)

    def _enter(self, key: Key, flight: Flight, segment: int, backlog: float) -> None:
        """Let the flow go on with piece `segment` of its sender's curve, or the one that is on by now."""
        while segment < len(flight.put_out):
            duration, size, end = flight.segment(segment)
            end += flight.first_byte_ns - self.origin_ns
            turn = instant(end)
            if duration > 0 and turn > self.now:
                heapq.heappush(self.turns, (turn, key))
                late = self.now - (end - duration)  # if the sender's message before this one held it up
                backlog += size * late / duration if late > INSTANT_NS else 0.0
                break
            backlog += size
            segment += 1
        self._continue(key, flight, segment, backlog)

    def _continue(self, key: Key, flight: Flight, segment: int, backlog: float) -> None:
        """Put the flow where it belongs: among those with a backlog, those without, or the complete ones."""
        if segment < len(flight.put_out):
            duration, size, _ = flight.segment(segment)
            self._join(key, flight, segment, (flight.cap, size / duration, backlog > 0), backlog)
        elif backlog > 0:
            self._join(key, flight, segment, (flight.cap, 0.0, True), backlog)
        else:
            arrival_ns = self.origin_ns + math.ceil(self.now)
            heapq.heappush(self.arrivals, (max(arrival_ns, flight.first_byte_ns + 1), key))
            queue = self.queues.pop(key[0])
            if queue:
                self.queues[key[0]] = queue[1:]
                self._enter(*queue[0], 0, 0.0)

    def _join(self, key: Key, flight: Flight, segment: int, kind: _Kind, backlog: float) -> None:
        group = self.groups.get(kind)
        if group is None:
            group = self.groups[kind] = _Group(kind)
        level = group.drained + backlog
        group.members[key] = None
        if kind[2]:
            heapq.heappush(group.levels, (level, key, segment))
        self.flows[key] = (flight, segment, kind, level)

    def _leave(self, key: Key) -> tuple[Flight, int, float]:
        """Take the flow out of its group; returns its flight, its segment, and its backlog in bytes."""
        flight, segment, kind, level = self.flows.pop(key)
        group = self.groups[kind]
        del group.members[key]
        if not group.members:
            del self.groups[kind]
        elif len(group.levels) > 16 + 2 * len(group.members):  # or a link that is never idle would hoard them
            group.levels = [entry for entry in group.levels if self._counts(entry, group)]
            heapq.heapify(group.levels)
        return flight, segment, max(level - group.drained, 0.0) if kind[2] else 0.0

    def _counts(self, entry: tuple[float, Key, int], group: _Group) -> bool:
        """Whether a level still stands for a flow of the group, and not for one that has left it."""
        return entry[1] in group.members and self.flows[entry[1]][1] == entry[2]


class Downlink:
    """One actor's downlink of `rate` bytes/ns, shared max-min fairly by the flights that are coming in.

    No flow is faster than its sender's uplink, nor ahead of what its sender has put out; those of one sender
    come in one after another. A message takes at least 1 ns to come in, so what starts at or after an
    arrival can never come before it: whoever takes an arrival must know by then every flight whose first
    byte is earlier. The result does not depend on when, in which order, or between which calls of `next`
    flights became known.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._settled = _Inflow(rate)  # as of the last arrival taken
        self._ahead: _Inflow | None = None  # as of the next arrival, if nobody else turns up before it
        self.taken_ns = 0
        """The last arrival taken: what begins before it comes too late to be let in."""
        self._bound_ns: float = 0  # nothing arrives before that, whatever becomes known

    def add(self, key: Key, flight: Flight, *, in_turn: bool = False) -> None:
        """Let `flight` come in too; raises ValueError if it begins before the last arrival taken.

        Unless it is `in_turn`: its sender's message before it is not in yet, or was itself that arrival. Until then
        it had to wait, so that it has disturbed nobody.
        """
        first_ns = flight.first_byte_ns
        if first_ns < self.taken_ns and in_turn and self.rate < math.inf:
            self._settled.take_turn(key, flight)
            self._ahead, self._bound_ns = None, self.taken_ns
            return
        if first_ns < self.taken_ns:
            raise ValueError(f"{key} starts at {first_ns} ns, before what was taken at {self.taken_ns} ns")
        if self.rate == math.inf:  # nobody disturbs anybody
            last_ns = math.ceil(instant(flight.put_out[-1][0]))
            heapq.heappush(self._settled.arrivals, (first_ns + max(last_ns, 1), key))
            return
        fastest_ns = max(flight.put_out[-1][0], flight.size_bytes / min(self.rate, flight.cap))
        self._bound_ns = min(self._bound_ns, first_ns + math.floor(fastest_ns))
        heapq.heappush(self._settled.waiting, (first_ns, key, flight))
        if self._ahead is not None:
            if self._ahead.arrivals and self._ahead.arrivals[0][0] <= first_ns:
                heapq.heappush(self._ahead.waiting, (first_ns, key, flight))
            else:
                self._ahead = None

    def remove(self, key: Key) -> None:
        """Let a flight that has not begun to come in by the last arrival taken never come in."""
        inflow = self._settled
        inflow.waiting = [entry for entry in inflow.waiting if entry[1] != key]
        inflow.arrivals = [entry for entry in inflow.arrivals if entry[1] != key]
        heapq.heapify(inflow.waiting)
        heapq.heapify(inflow.arrivals)
        self._ahead, self._bound_ns = None, self.taken_ns

    def next(self, before_ns: float = math.inf) -> tuple[int, Key] | None:
        """(ns, key) of the earliest arrival before `before_ns`, given the flights known; ties go by key.

        Cheap while `before_ns` is not later than the last answer, even if more has been added since: another
        flow can only slow the present ones down, so only what was added might arrive before them.
        """
        if not self._settled.arrivals and self._ahead is None:
            if before_ns <= self._bound_ns:
                return None
            self._ahead = self._settled.copy()
            self._ahead.run()
            arrivals = self._ahead.arrivals
            self._bound_ns = arrivals[0][0] - 1 if arrivals else math.inf  # a ns for what floats may round away
        arrivals = self._settled.arrivals or (self._ahead.arrivals if self._ahead is not None else [])
        return arrivals[0] if arrivals and arrivals[0][0] < before_ns else None

    def kept(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {"settled": self._settled.kept(), "taken_ns": self.taken_ns}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from where `kept` was told; what comes next is worked out again."""
        self._settled.restore(kept["settled"])
        self._ahead, self.taken_ns, self._bound_ns = None, kept["taken_ns"], kept["taken_ns"]

    def take(self) -> tuple[int, Key]:
        """Remove and return the earliest arrival: from now on nothing can change it or what was before it."""
        if self.next() is None:
            raise IndexError("nothing is coming in")
        if not self._settled.arrivals and self._ahead is not None:
            self._settled, self._ahead = self._ahead, None
        arrival = heapq.heappop(self._settled.arrivals)
        self.taken_ns = self._bound_ns = arrival[0]
        return arrival
