"""Cyclic groups: fixed groups of clients take turns in a fixed order, and the cohort is drawn inside the group.

"A personalized federated learning method based on stratified sampling" (in Chinese), section 2.1; Cho, Sharma, Joshi,
Xu, Kale, Zhang: On the Convergence of Federated Averaging with Cyclic Client Participation, ICML 2023.

Round t belongs to group t mod G. A client that has worked therefore does not work again for at least G - 1 rounds.
With G = N / B a group is a cohort, and everybody works exactly once in G rounds. The paper leaves open who is grouped
with whom.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pflsim.errors import DescriptionError
from pflsim.sampling import Population, Sampling, Strata, cut, some


@dataclass(frozen=True)
class Groups(Sampling):
    """`groups` disjoint groups whose sizes differ by one at most; a cohort is at most its whole group."""

    groups: int  # G
    grouping: Literal["random", "contiguous", "by-label", "by-speed"] = "random"

    def check(self, clients: int, count: int) -> None:
        """Raises DescriptionError for groups that would be empty."""
        if not 1 <= self.groups <= clients:
            expected = f"must be 1 to {clients}, the number of clients"
            raise DescriptionError("schedule.sampling.groups", self.groups, expected)

    def least(self, clients: int, count: int) -> int:
        """A smallest group, or as many as are wanted."""
        return min(count, clients // self.groups)

    def strata(self, population: Population, rng: np.random.Generator) -> Strata:
        """The groups in the order of their turns; by-speed: the fastest first."""
        clients = len(population.sizes)
        if self.grouping == "by-label":
            if population.label_counts is None:
                reason = "these data have no labels to group by"
                raise DescriptionError("schedule.sampling.grouping", self.grouping, reason)
            return _alike(population.label_counts, self.groups, rng)
        if self.grouping == "by-speed":
            return cut(np.argsort(population.visit_s, kind="stable").tolist(), self.groups)
        return cut(rng.permutation(clients).tolist() if self.grouping == "random" else range(clients), self.groups)

    def drawn(
        self,
        population: Population,
        candidates: Sequence[int],
        count: int,
        round: int,
        rng: np.random.Generator,
        losses: Mapping[int, float],
    ) -> tuple[int, ...]:
        """`count` of those candidates whose turn it is."""
        group = population.strata[round % self.groups]
        return some(sorted(set(group) & set(candidates)), count, rng)


def _alike(label_counts: np.ndarray, groups: int, rng: np.random.Generator) -> Strata:
    """Clients whose shares of labels [N, C] are alike together: k-means, then the cheapest balanced assignment to its
    centres, least in the sum of squared distances.
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    shares = label_counts / np.maximum(1, label_counts.sum(1, keepdims=True))
    means = KMeans(groups, n_init=4, random_state=int(rng.integers(2**31)))
    with threadpool_limits(1), warnings.catch_warnings():  # sums in one order; and no threads before a fork
        warnings.simplefilter("ignore")  # fewer different clients than groups: then some centres coincide
        centres = means.fit(shares).cluster_centers_
    places = np.concatenate([np.full(len(part), group) for group, part in enumerate(cut(range(len(shares)), groups))])
    distances = ((shares[:, None, :] - centres[None, :, :]) ** 2).sum(2)
    clients, taken = linear_sum_assignment(distances[:, places])
    return tuple(tuple(clients[places[taken] == group].tolist()) for group in range(groups))
