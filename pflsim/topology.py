"""Graphs between clients: what a weight matrix must satisfy, its Laplacian, its connected components."""

import numpy as np

from pflsim.errors import DescriptionError


def checked(graph: np.ndarray, clients: int, key: str = "topology") -> list[str]:
    """Refuses a matrix that is no undirected graph of `clients` nodes; returns warnings about its shape.

    A disconnected graph is allowed, and its components are named in the warning; an isolated node learns
    alone. Raises DescriptionError naming `key`.
    """
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
    parts = components(graph)
    if len(parts) <= 1:
        return []
    return [f"the graph is not connected: {len(parts)} components, {_shown(parts)}"]


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


def _shown(parts: list[tuple[int, ...]], most: int = 5) -> str:
    shown = "; ".join(", ".join(map(str, part[:8])) + (", …" if len(part) > 8 else "") for part in parts[:most])
    return shown + ("; …" if len(parts) > most else "")


class Topology:
    """(stub until the graphs land) A graph."""

    changes = False

    def __init__(self, graph: np.ndarray) -> None:
        self._graph = graph

    def at(self, round: int) -> np.ndarray:
        return self._graph

    def linked(self, k: int) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self._graph[k]).tolist())

    def mixing(self, round: int) -> np.ndarray:
        linked = self._graph > 0
        degrees = linked.sum(axis=1)
        W = np.where(linked, 1 / (1 + np.maximum(degrees[:, None], degrees[None, :])), 0.0)
        np.fill_diagonal(W, 1 - W.sum(axis=1))
        return W
