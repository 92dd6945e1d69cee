"""Agglomerative clustering: the two nearest clusters are merged, again and again."""

from typing import Literal, TypeAlias

import numpy as np

from pflsim.clustering.geometry import Matrix

Linkage: TypeAlias = Literal["ward", "complete", "average", "single"]


def merged(distances: Matrix, linkage: Linkage, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels [n] of what is merged at distances up to `threshold`, numbered by their first members; and all heights.

    The heights [n - 1] at which clusters merge, ascending, tell which threshold gives how many clusters. `distances`
    are [n, n]; "ward" needs Euclidean ones.
    """
    from scipy.cluster.hierarchy import fcluster

    if len(distances) == 1:
        return np.zeros(1, dtype=np.int64), np.zeros(0)
    tree = _tree(distances, linkage)
    return _by_first_member(fcluster(tree, threshold, "distance")), tree[:, 2]


def halves(distances: Matrix, linkage: Linkage) -> np.ndarray:
    """Labels 0 and 1 [n] of the last two clusters; the first point is in 0."""
    from scipy.cluster.hierarchy import cut_tree

    return _by_first_member(cut_tree(_tree(distances, linkage), 2)[:, 0])


def _tree(distances: Matrix, linkage: Linkage) -> Matrix:
    from scipy.cluster.hierarchy import linkage as merge
    from scipy.spatial.distance import squareform

    tree: Matrix = merge(squareform(distances, checks=False), linkage)
    return tree


def _by_first_member(labels: np.ndarray) -> np.ndarray:
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(int(label), len(numbers)) for label in labels])
