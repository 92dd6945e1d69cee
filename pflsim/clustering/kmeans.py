"""k-means of models, on their inner products: Lloyd's iterations from k-means++ or from the centres of before.

Arthur, Vassilvitskii: k-means++: The Advantages of Careful Seeding, SODA 2007. Points that are equal are one point
with their weights together, so that they are never parted. Of equally near centres the first one wins; distances
count to twelve digits, so that how a product was rounded does not decide. A cluster that becomes empty takes the
point that is farthest from its own centre.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pflsim.clustering.geometry import Matrix, gram, squared_distances

_RESTARTS = 10  # of k-means++, where no centres are known
_MOST_ITERATIONS = 100
_TYPICAL_ITERATIONS = 10  # what `flops` assumes
_LEAST_GAIN = 1e-7  # of the inertia, relative; less is the end
_DIGITS = 12


@dataclass(frozen=True)
class Clusters:
    """Which cluster each point is in, and how far the points are from their centres."""

    labels: np.ndarray  # [n] int64; with fewer than K different points these are the clusters 0, 1, ...
    inertia: float  # sum_j weight_j ||u_j - centre||^2
    iterations: int = 0  # of Lloyd, in the search that was best; the last one changed nothing, or hardly anything


def kmeans(
    points: Sequence[torch.Tensor],
    K: int,
    rng: np.random.Generator,
    *,
    weights: Sequence[float] | None = None,
    warm: Sequence[torch.Tensor] | None = None,
) -> Clusters:
    """At most K clusters of n points [d], one for each different point if these are no more than K.

    With `warm`, K centres [d], cluster k is the one that grew from centre k; else the best of 10 restarts. O(n^2 d).
    """
    cloud = _Cloud(points, weights, warm or ())
    if cloud.different <= K:
        return Clusters(cloud.place, 0.0)
    starts = [cloud.seeded(K, rng) for _ in range(_RESTARTS)] if warm is None else [cloud.start(cloud.to_warm)]
    labels, inertia, iterations = cloud.best(starts, K)
    return Clusters(labels[cloud.place], inertia, iterations)


def costs(
    points: Sequence[torch.Tensor], most: int, rng: np.random.Generator, weights: Sequence[float] | None = None
) -> np.ndarray:
    """The inertia [most] of k-means with 1, 2, ..., `most` clusters; it never rises.

    For that the search with K + 1 also starts from the K clusters and, as one more, the point farthest from its centre.
    """
    cloud, found = _Cloud(points, weights), np.zeros(most)
    labels = np.zeros(cloud.different, dtype=np.int64)
    for K in range(1, min(most, cloud.different - 1) + 1):
        grown = cloud.filled(labels, cloud.to_centres(labels, max(1, K - 1)), K)
        labels, found[K - 1], _ = cloud.best([grown, *(cloud.seeded(K, rng) for _ in range(_RESTARTS))], K)
    return np.minimum.accumulate(found)


def flops(points: int, d: int, K: int) -> float:
    """What a server computes for k-means with restarts and the centres: estimated, with ten iterations each."""
    return 2.0 * points**2 * d + 2.0 * points**2 * K * _RESTARTS * _TYPICAL_ITERATIONS + 2.0 * points * d


class _Cloud:
    """The different ones among n points, with their weights and the distances between them."""

    def __init__(
        self,
        points: Sequence[torch.Tensor],
        weights: Sequence[float] | None = None,
        warm: Sequence[torch.Tensor] = (),
    ) -> None:
        first: dict[bytes, int] = {}
        place = [first.setdefault((point + 0.0).numpy().tobytes(), len(first)) for point in points]  # -0.0 is 0.0
        self.place, self.different = np.array(place), len(first)  # [n], and how many
        mass = np.bincount(place, weights)
        self.mass = np.maximum(mass, 1e-12 * mass.sum())  # a point without weight still has a cluster
        own = [points[place.index(number)] for number in range(self.different)]
        products = gram([*own, *warm], own[0])
        between = squared_distances(products)
        self.products, self.between = products[: len(own), : len(own)], between[: len(own), : len(own)]
        self.to_warm = between[: len(own), len(own) :]
        self.scale = float(between.max()) or 1.0

    def nearest(self, distances: Matrix) -> np.ndarray:
        """The nearest centre of each point, the first of equally near ones; `distances` are [m, K], squared."""
        nearest: np.ndarray = np.round(distances / self.scale, _DIGITS).argmin(1)
        return nearest

    def start(self, distances: Matrix) -> np.ndarray:
        """Labels of the nearest centres, and no cluster is empty; `distances` are [m, K], squared."""
        return self.filled(self.nearest(distances), distances, distances.shape[1])

    def seeded(self, K: int, rng: np.random.Generator) -> np.ndarray:
        """Labels by k-means++: each seed is drawn with the squared distance from those before."""
        chosen = [int(rng.choice(self.different, p=self.mass / self.mass.sum()))]
        while len(chosen) < K:
            chance = self.between[:, chosen].min(1) * self.mass
            if not chance.sum() > 0.0:  # different, but not in the digits of a distance
                chosen.append(min(set(range(self.different)) - set(chosen)))
                continue
            chosen.append(int(rng.choice(self.different, p=chance / chance.sum())))
        return self.start(self.between[:, chosen])

    def to_centres(self, labels: np.ndarray, K: int) -> Matrix:
        """Squared distances [m, K] of the points from the means of the clusters, none of which may be empty."""
        share = np.eye(K)[labels] * self.mass[:, None]
        share /= share.sum(0)
        cross = self.products @ share
        found = np.diag(self.products)[:, None] - 2.0 * cross + (share * cross).sum(0)
        return np.asarray(np.maximum(found, 0.0))

    def filled(self, labels: np.ndarray, distances: Matrix, K: int) -> np.ndarray:
        """`labels` without an empty cluster: each takes the point farthest from its centre that is not alone."""
        labels = labels.copy()
        far = distances[np.arange(self.different), labels]
        for empty in sorted(set(range(K)) - set(labels.tolist())):
            lonely = np.bincount(labels, minlength=K)[labels] == 1
            taken = int(np.where(lonely, -1.0, far).argmax())
            labels[taken], far[taken] = empty, -1.0
        return labels

    def best(self, starts: Sequence[np.ndarray], K: int) -> tuple[np.ndarray, float, int]:
        """Labels, inertia and iterations of the best search; of equally good ones the first."""
        return min((self._search(start, K) for start in starts), key=lambda found: found[1])

    def _search(self, labels: np.ndarray, K: int) -> tuple[np.ndarray, float, int]:
        """Lloyd's iterations until nothing changes, or hardly anything is gained."""
        distances = self.to_centres(labels, K)
        inertia, iterations = self._inertia(labels, distances), 0
        while iterations < _MOST_ITERATIONS:
            iterations += 1
            moved = self.filled(self.nearest(distances), distances, K)
            if np.array_equal(moved, labels):
                break
            distances = self.to_centres(moved, K)
            labels, before, inertia = moved, inertia, self._inertia(moved, distances)
            if before - inertia < _LEAST_GAIN * before:
                break
        return labels, inertia, iterations

    def _inertia(self, labels: np.ndarray, distances: Matrix) -> float:
        return float((self.mass * distances[np.arange(self.different), labels]).sum())
