"""A grid whose edges are glued together: everybody has four neighbours."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def torus(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    rows: int | None = None,
) -> np.ndarray:
    """Weight 1 between neighbours on a grid of `rows` times N / `rows` that is closed in both directions, as [N, N].

    Client k stands in row k // columns. Without `rows` it is the grid that is nearest to a square. With two rows or
    columns, both ways round lead to the same neighbour, and there are three.
    """
    clients = len(labels)
    fitting = [number for number in range(2, clients) if clients % number == 0]
    if not fitting:
        reason = "a torus needs rows and columns, at least two of each: their product, no prime number"
        raise DescriptionError("run.clients", clients, reason)
    if rows is None:
        rows = max(number for number in fitting if number**2 <= clients)
    if rows not in fitting:
        choices = ", ".join(map(str, fitting))
        raise DescriptionError("topology.rows", rows, f"must be one of {choices}, to have {clients} clients in a grid")
    numbers = np.arange(clients).reshape(rows, clients // rows)
    graph = np.zeros((clients, clients))
    for axis in (0, 1):
        following = np.roll(numbers, -1, axis=axis)
        graph[numbers, following] = graph[following, numbers] = 1.0
    return graph
