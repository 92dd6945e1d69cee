"""Labels that keep their meaning from round to round, and the means of the clusters that they make."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from pflsim.clustering.geometry import gram, squared_distances
from pflsim.learning.vector import average

NONE = -1  # the label of a client that is in no cluster


def members(labels: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Each label that occurs, ascending, with the places at which it does; `NONE` is no label."""
    places: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(int(label), []).append(place)
    return sorted((label, found) for label, found in places.items() if label != NONE)


def means(
    points: Sequence[torch.Tensor], labels: np.ndarray, K: int, weights: Sequence[float] | None = None
) -> list[torch.Tensor | None]:
    """The mean [d] of each of K clusters, in float64 and cast once; None for one that is empty."""
    shares = [1.0] * len(points) if weights is None else weights
    found = []
    for k in range(K):
        members = np.flatnonzero(labels == k).tolist()
        found.append(average([points[j] for j in members], [shares[j] for j in members]))
    return found


def nearest(point: torch.Tensor, centres: Sequence[torch.Tensor]) -> int:
    """Which of the centres [d] is nearest to `point` [d]; of equally near ones the first."""
    return int(squared_distances(gram([point, *centres], point))[0, 1:].argmin())


def aligned(
    labels: np.ndarray,
    before: np.ndarray,
    points: Sequence[torch.Tensor],
    centres: Sequence[torch.Tensor],
) -> np.ndarray:
    """`labels` [n] renamed, so that each cluster has the number of the one before with which it shares most points.

    `before` [n] are the points' labels of before (`NONE`: none), `centres` the K centres [d] of before; of clusters
    that share equally many points the nearer centres belong together. An assignment that is best for all together.
    """
    from scipy.optimize import linear_sum_assignment

    K, new = len(centres), int(labels.max()) + 1
    shared = np.zeros((new, K))
    for label, old in zip(labels, before, strict=True):
        if old != NONE:
            shared[label, old] += 1.0
    now = [mean if mean is not None else points[0] for mean in means(points, labels, new)]
    distance = squared_distances(gram([*now, *centres], points[0]))[:new, new:]
    largest = float(distance.max()) or 1.0
    rows, columns = linear_sum_assignment(distance / (largest * (new + 1)) - shared)  # all distances weigh less than 1
    names = np.zeros(new, dtype=np.int64)
    names[rows] = columns
    renamed: np.ndarray = names[labels]
    return renamed
