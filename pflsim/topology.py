"""Graphs between clients: what a weight matrix must satisfy, its Laplacian, its mixing matrix, its components.

`Topology` is the graph that a description's `[topology]` names, round by round: a file of `topologies/` says who is
linked with whom, and `weights` how strongly. The graph of round r is a function of the seed and of r alone, so that
every process that asks for it gets the same one, without a word to anybody.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from pflsim import catalogue
from pflsim.errors import DescriptionError
from pflsim.rng import stream

Weights = Literal["own", "equal", "uniform", "random", "similar", "weighted", "metropolis"]
"""What `[topology] weights` may be: the file's own, or what is put on the edges that the file gives."""

_REMEMBERED = 8  # graphs of a changing topology: neighbours are a few rounds apart


def checked(graph: np.ndarray, clients: int, key: str = "topology") -> list[str]:
    """Refuses a matrix that is no undirected graph of `clients` nodes; returns warnings about its shape.

    A disconnected graph is allowed, and its components are named in the warning; an isolated node learns
    alone. Raises DescriptionError naming `key`.
    """
    require_graph(graph, clients, key)
    parts = components(graph)
    if len(parts) <= 1:
        return []
    return [f"the graph is not connected: {len(parts)} components, {_shown(parts)}"]


def require_graph(graph: np.ndarray, clients: int, key: str = "topology") -> None:
    """Refuses a matrix that is no undirected graph of `clients` nodes. Raises DescriptionError naming `key`."""
    if graph.shape != (clients, clients):
        raise DescriptionError(key, graph.shape, f"must be one row and one column per client: {(clients, clients)}")
    if not np.isfinite(graph).all():
        raise DescriptionError(key, "weights", "must be finite")
    if not np.array_equal(graph, graph.T):
        k, m = np.argwhere(graph != graph.T)[0]
        raise DescriptionError(key, (graph[k, m], graph[m, k]), f"a[{k},{m}] and a[{m},{k}] must be equal")
    if graph.min(initial=0.0) < 0.0:
        k, m = np.argwhere(graph < 0.0)[0]
        raise DescriptionError(key, graph[k, m], f"a[{k},{m}] must not be negative")
    if graph.diagonal().any():
        k = int(np.flatnonzero(graph.diagonal())[0])
        raise DescriptionError(key, graph[k, k], f"a[{k},{k}] must be 0: no client is its own neighbour")


def laplacian(graph: np.ndarray) -> np.ndarray:
    """L = D - A [N, N] with D the diagonal of the row sums of A."""
    return np.asarray(np.diag(graph.sum(axis=1)) - graph)


def lambda_max(graph: np.ndarray) -> float:
    """The largest eigenvalue of the Laplacian; at most twice the largest degree."""
    return float(np.linalg.eigvalsh(laplacian(graph))[-1]) if len(graph) else 0.0


def components(graph: np.ndarray) -> list[tuple[int, ...]]:
    """The connected components, each ascending, in the order of their smallest member."""
    found: list[tuple[int, ...]] = []
    left = set(range(len(graph)))
    while left:
        reached, frontier = set[int](), {min(left)}
        while frontier:
            reached |= frontier
            linked = graph[sorted(frontier)].any(axis=0)
            frontier = {int(node) for node in np.flatnonzero(linked)} - reached
        found.append(tuple(sorted(reached)))
        left -= reached
    return found


def edges(graph: np.ndarray) -> list[tuple[int, int]]:
    """The pairs (k, l), k < l, that have a weight, in ascending order."""
    return [(int(k), int(m)) for k, m in np.argwhere(np.triu(graph) > 0.0)]


def mixing_matrix(graph: np.ndarray) -> np.ndarray:
    """Metropolis-Hastings W [N, N] on the edges of `graph`: symmetric, doubly stochastic, none negative.

    W_kl = 1 / (1 + max(deg k, deg l)) for linked k and l, where deg counts neighbours; the rest of a row stays with k.
    Source: Xiao, Boyd, Lall: A Scheme for Robust Distributed Sensor Fusion Based on Average Consensus.
    """
    linked = graph > 0.0
    degrees = linked.sum(axis=1)
    W = np.where(linked, 1.0 / (1.0 + np.maximum(degrees[:, None], degrees[None, :])), 0.0)
    np.fill_diagonal(W, 1.0 - W.sum(axis=1))
    return W


def spectral_gap(mixing: np.ndarray) -> float:
    """1 - the second largest modulus of an eigenvalue of W [N, N]: how fast averaging with it reaches consensus.

    0 where it never does, as on a graph that is not connected; 1 for a node by itself.
    """
    moduli = np.sort(np.abs(np.linalg.eigvalsh(mixing)))
    return float(1.0 - moduli[-2]) if len(moduli) > 1 else 1.0


class Topology:
    """The weights between clients in every round, as the description's `[topology]` has them.

    `labels` and `sizes` [N] are what topologies may know of the clients; `rounds` is how many there will be. Raises
    DescriptionError for settings that make no graph of N nodes, here or in a later round.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, object],
        labels: Sequence[tuple[int, ...]],
        sizes: np.ndarray,
        seed: int,
        *,
        weights: Weights = "own",
        rounds: int = 1,
    ) -> None:
        self.name, self.weights = name, weights
        self._found = catalogue.find("topologies", name, "topology.name")
        self._settings = catalogue.validated(self._found, settings, "topology")
        self._labels, self._sizes, self._seed, self._rounds = labels, sizes, seed, rounds
        self._known: dict[int, np.ndarray] = {}
        self.changes = _takes_round(self._found)
        first = self.at(0)  # here, so that what makes no graph is refused before anything starts
        self.warnings = [] if self.changes else checked(first, len(labels))  # one round alone may well be in parts

    def at(self, round: int) -> np.ndarray:
        """The weights a_kl [N, N] in round `round`, from 0, read-only; always the same object if nothing changes."""
        round = round if self.changes else 0
        if round not in self._known:
            graph = self._weighed(self._drawn(round))
            graph.flags.writeable = False
            require_graph(graph, len(self._labels))
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[round] = graph
        return self._known[round]

    def linked(self, k: int) -> tuple[int, ...]:
        """Everybody with whom k may ever be linked, ascending: all others where the graph changes."""
        if self.changes:
            return tuple(other for other in range(len(self._labels)) if other != k)
        return tuple(np.flatnonzero(self.at(0)[k]).tolist())

    def lambda_max(self, round: int = 0) -> float:
        """The largest eigenvalue of the Laplacian in round `round`; costs N^3.

        To nine digits, so that how many threads worked it out does not show in a model.
        """
        return _nine_digits(lambda_max(self.at(round)))

    @cached_property
    def bound(self) -> float:
        """2 max_k D_k over all rounds, D_k the sum of k's weights: what `lambda_max` never exceeds."""
        rounds = range(self._rounds if self.changes else 1)
        return _nine_digits(2.0 * max(float(self.at(round).sum(axis=1).max(initial=0.0)) for round in rounds))

    def mixing(self, round: int = 0) -> np.ndarray:
        """The Metropolis-Hastings matrix W [N, N] of the edges of round `round`, see `mixing_matrix`."""
        return mixing_matrix(self.at(round))

    def spectral_gap(self, round: int = 0) -> float:
        """That of `mixing`, to nine digits; costs N^3."""
        return _nine_digits(spectral_gap(self.mixing(round)))

    def facts(self, round: int = 0) -> dict[str, Any]:
        """What there is to say about the graph of round `round`, as plain values; degrees count neighbours."""
        graph = self.at(round)
        degrees = np.count_nonzero(graph, axis=1)
        return {
            "name": self.name,
            "weights": self.weights,
            "changes": self.changes,
            "nodes": len(graph),
            "edges": int(degrees.sum()) // 2,
            "least_degree": int(degrees.min()),
            "mean_degree": float(degrees.mean()),
            "largest_degree": int(degrees.max()),
            "components": len(components(graph)),
            "lambda_max": self.lambda_max(round),
            "spectral_gap": self.spectral_gap(round),
        }

    def _drawn(self, round: int) -> np.ndarray:
        """What the file makes, [N, N]."""
        path, extra = (("topology", round), (round,)) if self.changes else (("topology",), ())
        given = (self._labels, self._sizes, stream(self._seed, *path), *extra)
        made = catalogue.made(self._found, "topology.name", self.name, np.ndarray, *given, **self._settings)
        try:
            return np.array(made, dtype=np.float64)
        except (TypeError, ValueError) as problem:
            raise DescriptionError("topology.name", self.name, f"must make real numbers, not {made.dtype}") from problem

    def _weighed(self, graph: np.ndarray) -> np.ndarray:
        """The weights that the description wants, [N, N], on the edges of `graph`."""
        if self.weights == "own":
            return graph
        if self.weights == "metropolis":
            weighed = mixing_matrix(graph)
            np.fill_diagonal(weighed, 0.0)
            return weighed
        return np.where(graph > 0.0, 1.0 if self.weights == "uniform" else self._scenario, 0.0)

    @cached_property
    def _scenario(self) -> np.ndarray:
        """The weight of every pair [N, N], whatever the edges and the round, by a file of that name."""
        rng = stream(self._seed, "topology", "weights")
        weighs = catalogue.find("topologies", self.weights, "topology.weights")
        return np.asarray(weighs(self._labels, self._sizes, rng))


def _takes_round(found: Callable[..., Any]) -> bool:
    parameter = inspect.signature(found).parameters.get("round")
    return parameter is not None and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def _nine_digits(number: float) -> float:
    return float(f"{number:.9g}")


def _shown(parts: list[tuple[int, ...]], most: int = 5) -> str:
    shown = "; ".join(", ".join(map(str, part[:8])) + (", …" if len(part) > 8 else "") for part in parts[:most])
    return shown + ("; …" if len(parts) > most else "")
