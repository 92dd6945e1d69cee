"""Who exchanges models with whom and when: a pure function of the seed, so that every peer knows it of every other."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from pflsim.rng import stream
from pflsim.schedule import WithoutServer
from pflsim.timing.faults import Faults
from pflsim.topology import Topology

_NO_TIME_NS = -1
"""A time at which no fault holds that is dated in seconds: these are no appointments, peers meet them on the way."""


class Appointments:
    """The appointments of the peers with these `names` on a topology, under a schedule.

    Of faults only what is dated in rounds is known beforehand: who is down in a round sits it out, and a partition
    takes its edges out of the graph.
    """

    def __init__(
        self, schedule: WithoutServer, topology: Topology, names: Sequence[str], seed: int, faults: Faults
    ) -> None:
        self._schedule, self._topology, self._names, self._seed, self._faults = schedule, topology, names, seed, faults
        self._of_round = lru_cache(maxsize=4)(self._drawn_for_round)
        self._graph = lru_cache(maxsize=4)(self._uncut)
        self._active = lru_cache(maxsize=4)(self._who_is_active)
        self._mixing = lru_cache(maxsize=4)(topology.mixing)

    def linked(self, peer: int) -> tuple[int, ...]:
        """Everybody with whom `peer` may ever exchange a model, ascending."""
        return self._topology.linked(peer)

    @property
    def are_everybodys(self) -> bool:
        """Whether everybody speaks to all of its neighbours after each piece of work."""
        return self._schedule.tells_everybody and not self._topology.changes and not self._faults.in_rounds

    def neighbours(self, peer: int, round: int) -> tuple[int, ...]:
        """The neighbours of `peer` in the graph of a round, ascending."""
        return tuple(np.flatnonzero(self._graph(round)[peer]).tolist())

    def is_active(self, peer: int, round: int) -> bool:
        """Whether `peer` takes part in its round: each that is up does with the schedule's probability."""
        return bool(self._active(round)[peer])

    def of_round(self, peer: int, round: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """To whom `peer` sends its model in a round, and from whom it will get one; both ascending."""
        sends = self._of_round(round)
        return tuple(np.flatnonzero(sends[peer]).tolist()), tuple(np.flatnonzero(sends[:, peer]).tolist())

    def partners(self, peer: int, round: int, count: int) -> tuple[int, ...]:
        """So many neighbours (or all, if there are fewer), drawn for this peer's round; ascending."""
        neighbours = self.neighbours(peer, round)
        if count >= len(neighbours):
            return neighbours
        rng = stream(self._seed, "partners", peer, round)
        return tuple(sorted(rng.choice(neighbours, count, replace=False).tolist()))

    def weights(self, peer: int, round: int, others: Sequence[int]) -> list[tuple[float, float]]:
        """For each of these others, its a_kl of the graph, and the share that its model has in a mixture."""
        graph = self._topology.at(round)[peer]
        if self._schedule.mixes_evenly:
            return [(float(graph[other]), 1 / (1 + len(others))) for other in others]
        mixing = self._mixing(round if self._topology.changes else 0)[peer]
        return [(float(graph[other]), float(mixing[other])) for other in others]

    def _who_is_active(self, round: int) -> np.ndarray:
        active = np.ones(len(self._names), dtype=bool)
        if self._schedule.active < 1:
            active = stream(self._seed, "active", round).random(len(self._names)) < self._schedule.active
        if self._faults.in_rounds:
            active &= [self._faults.crash(name, _NO_TIME_NS, round) is None for name in self._names]
        return active

    def _uncut(self, round: int) -> np.ndarray:
        """The weights of the graph of a round [N, N], without the edges that a partition cuts."""
        graph = self._topology.at(round)
        if not self._faults.in_rounds:
            return graph
        cut = [
            (one, other)
            for one, other in np.argwhere(graph)
            if self._faults.is_cut(self._names[one], self._names[other], _NO_TIME_NS, round)
        ]
        if not cut:
            return graph
        graph = graph.copy()
        graph[tuple(np.transpose(cut))] = 0.0
        return graph

    def _drawn_for_round(self, round: int) -> np.ndarray:
        """Whether k sends to l in a round, [N, N]."""
        linked, active = self._graph(round) > 0, self._active(round)
        sends: np.ndarray = linked & active[:, None] & active[None, :]
        if self._schedule.receivers is None:
            return sends
        rank = stream(self._seed, "receivers", round).random(sends.shape)
        rank[~sends] = np.inf
        chosen = np.argsort(np.argsort(rank, axis=1), axis=1) < self._schedule.receivers
        return np.asarray(sends & chosen)
