"""CGPFL-Heur: CGPFL that chooses the number of contexts itself, from a bound of the generalisation error.

Tang, Guo, Guo: Personalized Federated Learning with Contextualized Generalization, IJCAI 2022, section 4.4.

In the first `heur_rounds` rounds the server computes for K = `least` ... `K` (N / 2, where it is 0)
    e(K) = sqrt((d K / n) log(e n / d)) + mu_h cost(K),   cost(K) = sum_i (n_i / n) min_k ||w_i - omega_k||^2,   (11)
with the uploads w_i in place of the unknown theta*_i, takes the K with the least e(K) (the smaller of two), and goes on
as CGPFL with that K. Everything else is CGPFL's: see its file. The server's state also has e(K) [candidates].

Readings. mu_h is "a hyper-parameter" without a value, and the chosen K measures it: with the theorem's lambda + L / 2
MNIST would have a single context. So by default both parts are measured against their values for one cluster, which
makes mu_h a number without a unit (`bound = "relative"`):
    e(K) = sqrt(K) + mu_h cost(K) / cost(1),    and 1 context where cost(1) = 0.
`bound = "paper"` is (11) as printed; its logarithm is negative where d > e n, and is refused there. `bound = "clamped"`
takes log(e max(n, d) / d), which is the same for n >= d and at least 1. cost(K) is that of k-means weighted by samples,
as printed (`cost_weights`), and never rises with K. Clusters are made anew where K changes, each from the mean of those
before; the clusters of CGPFL are unweighted.

Asynchronous form: CGPFL's; K is chosen with its first clusters. Buffered: in the first buffers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from pflsim.algorithms.cgpfl import CGPFL
from pflsim.clustering.kmeans import costs, flops
from pflsim.clustering.labels import NONE
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Federation, Round, Tensors, require_number
from pflsim.learning.vector import average


@dataclass(frozen=True)
class CGPFLHeur(CGPFL):
    """CGPFL with the K that makes e(K) least."""

    K: int = 0  # the most contexts that are tried; 0: half of the clients
    least: int = 1  # the fewest that are tried
    mu_h: float = 10.0  # what the cost counts beside the complexity
    bound: Literal["relative", "clamped", "paper"] = "relative"  # which e(K)
    cost_weights: Literal["samples", "uniform"] = "samples"  # n_i / n in the cost, or 1 / N
    heur_rounds: int = 1  # how often K is chosen

    def check(self, federation: Federation) -> list[str]:
        most, n, d = self._most(federation), int(federation.sizes.sum()), len(federation.initial)
        require_number("algorithm.mu_h", self.mu_h, 0)
        require_number("algorithm.heur_rounds", self.heur_rounds, 1)
        require_number("algorithm.K", self.K, 0)
        if not 1 <= self.least <= most:
            raise DescriptionError("algorithm.least", self.least, f"must be from 1 to {most}, the most that are tried")
        if self.bound == "paper" and d > math.e * n:
            reason = f"has no value for d = {d} parameters and n = {n} samples (log(e n / d) < 0); take clamped"
            raise DescriptionError("algorithm.bound", self.bound, reason)
        return CGPFL.check(replace(self, K=most), federation)

    def server_init(self, federation: Federation) -> Tensors:
        candidates = self._most(federation) - self.least + 1
        counts = {"chosen": torch.tensor(0), "e": torch.zeros(candidates, dtype=torch.float64)}
        return CGPFL.server_init(replace(self, K=1), federation) | counts

    def measures(self, all: Tensors, round: Round) -> dict[str, object]:
        chosen = {"K": len(all["omega"]), "e": all["e"].numpy()} if int(all["chosen"]) else {}
        return super().measures(all, round) | chosen

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return flops(len(answers), len(federation.initial), self._most(federation))

    def _regrouped(
        self,
        all: Tensors,
        uploads: Sequence[tuple[int, torch.Tensor]],
        weights: Sequence[float] | None,
        round: Round,
        buffered: bool = False,
    ) -> Tensors:
        if int(all["chosen"]) < self.heur_rounds:
            all = self._chosen(all, uploads, round)
        return super()._regrouped(all, uploads, weights, round, buffered)

    def _chosen(self, all: Tensors, uploads: Sequence[tuple[int, torch.Tensor]], round: Round) -> Tensors:
        """The state with as many contexts as make e(K) least."""
        e = self._e(uploads, round)
        K = self.least + int(e.argmin())
        all = {**all, "chosen": all["chosen"] + 1, "e": torch.from_numpy(e)}
        if len(all["omega"]) == K and bool((all["labels"] != NONE).any()):
            return all
        middle = average(list(all["omega"]), [1.0] * len(all["omega"]))
        assert middle is not None
        return {**all, "omega": middle.repeat(K, 1), "labels": torch.full_like(all["labels"], NONE)}

    def _e(self, uploads: Sequence[tuple[int, torch.Tensor]], round: Round) -> np.ndarray:
        """e(K) of each candidate, from these uploads and the clients that sent them."""
        federation = round.federation
        n, d = int(federation.sizes.sum()), len(federation.initial)
        sizes = [float(federation.sizes[i]) if self.cost_weights == "samples" else 1.0 for i, _ in uploads]
        most = self._most(federation)
        cost = costs([w for _, w in uploads], most, round.rng("heuristic"), sizes) / sum(sizes)
        K = np.arange(1, most + 1)
        if self.bound == "relative":
            e = np.sqrt(K) + self.mu_h * (cost / cost[0] if cost[0] > 0.0 else cost)
        else:
            e = np.sqrt(d * K / n * np.log(math.e * max(n, d if self.bound == "clamped" else n) / d)) + self.mu_h * cost
        return np.asarray(e[self.least - 1 :])

    def _most(self, federation: Federation) -> int:
        return self.K or max(1, len(federation.clients) // 2)
