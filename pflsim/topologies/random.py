"""Weights drawn at random: the scenario R of FedU."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pflsim.errors import DescriptionError


def random(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    draw: Literal["normal", "uniform"] = "normal",
    threshold: float = 0.25,
) -> np.ndarray:
    """A symmetric random graph [N, N] with weights in [0, 1].

    `normal`: g_kl ~ N(0, 1), symmetrised as (g + g^T) / 2, then stretched so that the smallest weight of a
    pair is 0 and the largest is 1. `uniform`: U(0, 1), symmetrised, and weights below `threshold` set to 0,
    which is what the authors' published commands use. Source: Dinh et al., "A New Look and Convergence Rate
    of Federated Multi-Task Learning with Laplacian Regularization", experiments, "Random (R)".
    """
    if not 0.0 <= threshold < 1.0:
        raise DescriptionError("topology.threshold", threshold, "must be from 0 and below 1")
    clients = len(labels)
    drawn = rng.normal(size=(clients, clients)) if draw == "normal" else rng.uniform(size=(clients, clients))
    graph = (drawn + drawn.T) / 2
    pairs = ~np.eye(clients, dtype=bool)
    if draw == "uniform":
        graph[graph < threshold] = 0.0
    elif clients > 2:  # a single pair has no range to stretch
        low, high = graph[pairs].min(), graph[pairs].max()
        graph = (graph - low) / (high - low)
    else:
        graph = np.ones_like(graph)
    return np.where(pairs, graph, 0.0)
