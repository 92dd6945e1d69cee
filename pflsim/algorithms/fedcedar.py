"""FedCedar: the answers of a round are clustered, and the centres learn from each other over a graph of their likeness.

Wang, Chen, Wu, Das, Yang, Ma: Rethinking Personalized Federated Learning with Clustering-based Dynamic Graph
Propagation, PAKDD 2024, section 3.

Objective of client i: min over w_i of f_i(w_i), from where the server puts it.

Round t:
    server      sends to client i in S_t    what_k(i), k(i) its cluster of the round before, if i was in S_{t-1}
                                            the mean of all what_k otherwise                           conditions 1, 2
    client i    w_i <- local epochs of SGD on f_i from what it received; sends w_i, and keeps it to be evaluated
    server      c_1 ... c_K, k(.) <- k-means of the w_i, anew in each round                                        (1)
                r_kl = s(cos(c_k, c_l)) / sum_m s(cos(c_k, c_m)), l = k included
                P times  c_k <- sum_l r_kl c_l;  what_k <- c_k                                                     (2)
Communication per visit: 1 vector [d] down, 1 up. State: what [K, d], their mean and the labels k(i) of the last round
(-1: was not in it) at the server; the last w_i at the client. With fewer different answers than K there are as many
clusters as answers.

Ablations (`ablation`): "AS-1" has no clusters, each answer is a node; "AS-2" has no propagation (P = 0); "AS-3" sends
the mean of all what_k to everybody.

Readings. The paper's text has neither formula: r has the row sums that it asks for. `similarity`: s(x) = max(x, 0), or
"shift" (1 + x) / 2, "softmax" exp(x / temperature), or "signed", x itself, which fails where a row adds up to nothing.
Models trained from a common start have cosines near 1, so that r is nearly 1 / K and one propagation makes all what_k
nearly equal: the measures `spread_before` and `spread_after` tell, as the largest distance between two centres, and so
does `r`, the edges (without propagation each centre has itself alone).
`sim_on = "delta"` compares what members learnt in the round, "head" the last layer alone. The mean is over clusters
(`mean = "clients"`: by their members). The headline is each client's own w_i (`eval_model = "received"`: what it would
be sent now); compare other methods after local training too, as FedAvg's `finetuned`. `remember = "last_seen"` sends a
client what it was due after the last round in which it was, however long ago, and needs [N, d] at the server.

Asynchronous form: a full buffer is a round, in which k-means and the means weigh an answer by s(age); fedbuff's rate
has no meaning then. There is none for single arrivals, which cannot be clustered: fedasync is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from pflsim.clustering.geometry import cosines, gram, squared_distances
from pflsim.clustering.kmeans import flops, kmeans
from pflsim.clustering.labels import NONE, means
from pflsim.errors import RunFailed
from pflsim.federation import Answer, Client, Federation, Round, Tensors, require_number
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import Layout, average

_LEAST_ROW_SUM = 1e-6


@dataclass(frozen=True)
class FedCedar:
    """what <- r^P c, of the centres c of what was sent."""

    K: int = 4  # clusters; the paper tries 3 to 7
    P: int = 2  # propagations; the paper tries 1 to 5
    ablation: Literal["none", "AS-1", "AS-2", "AS-3"] = "none"
    similarity: Literal["clip", "shift", "softmax", "signed"] = "clip"  # s
    temperature: float = 1.0  # of the softmax
    self_loop: bool = True  # whether a centre is its own neighbour
    sim_on: Literal["params", "delta", "head"] = "params"  # what the cosine compares
    mean: Literal["clusters", "clients"] = "clusters"  # what the mean of the what_k is over
    remember: Literal["last_round", "last_seen"] = "last_round"  # how long a client's cluster is known
    eval_model: Literal["local", "received"] = "local"  # which is the headline; both are evaluated

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.K", self.K, 1)
        require_number("algorithm.P", self.P, 0)
        require_number("algorithm.temperature", self.temperature, 0, above=True)
        return []

    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        w = task.sgd(down["what"])
        return {"w": w}, {"w": w}

    def server_init(self, federation: Federation) -> Tensors:
        w0, N = federation.initial, len(federation.clients)
        all = {"what": w0.repeat(1, 1), "mean": w0, "labels": torch.full((N,), NONE), "spread": torch.zeros(2)}
        all["r"] = torch.ones(1, 1, dtype=torch.float64)
        return all | {"due": w0.repeat(N, 1), "seen": torch.zeros(N, dtype=torch.int64)} if self._remembers else all

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        if self.ablation == "AS-3":
            return {"what": all["mean"]}
        if self._remembers:
            return {"what": all["due"][client] if all["seen"][client] else all["mean"]}
        k = int(all["labels"][client])
        return {"what": all["mean"] if k == NONE else all["what"][k]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        return self._propagated(all, answers, [answer.weight for answer in answers], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self._propagated(all, answers, weights, round)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        local, received = {"local": you["w"]}, {"received": down["what"]}
        return local | received if self.eval_model == "local" else received | local

    def measures(self, all: Tensors, round: Round) -> dict[str, object]:
        before, after = all["spread"].tolist()
        clusters = {"labels": all["labels"].numpy(), "clusters": len(all["what"])}
        return clusters | {"spread_before": before, "spread_after": after, "r": all["r"].numpy()}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        B, d = len(answers), len(federation.initial)
        K = B if self.ablation == "AS-1" else min(self.K, B)
        return (0.0 if self.ablation == "AS-1" else flops(B, d, K)) + 4.0 * K**2 * d  # cosines and one product by r^P

    @property
    def _remembers(self) -> bool:
        return self.remember == "last_seen"

    def _propagated(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        """The state after these answers have been clustered and their centres propagated."""
        if not answers:
            return all
        uploads = [answer.up["w"] for answer in answers]
        found = np.arange(len(uploads))
        if self.ablation != "AS-1":
            found = kmeans(uploads, self.K, round.rng("k-means"), weights=weights).labels
        c = _centres(uploads, found, weights)
        what, r = c, np.eye(len(c))
        if self.ablation != "AS-2" and self.P > 0:
            r = self._edges(_cosines(c, found, answers, weights, self.sim_on, round.federation.layout))
            what = (torch.from_numpy(np.linalg.matrix_power(r, self.P)) @ c.double()).to(c.dtype)
        labels = torch.full_like(all["labels"], NONE)
        labels[[answer.client for answer in answers]] = torch.from_numpy(found)
        members = np.bincount(found).tolist() if self.mean == "clients" else [1.0] * len(what)
        mean = average(list(what), members)
        assert mean is not None
        kept = self._kept(all, labels, what) if self._remembers else {}
        spread = torch.tensor([_spread(c), _spread(what)])
        return {"what": what, "mean": mean, "labels": labels, "spread": spread, "r": torch.from_numpy(r), **kept}

    def _edges(self, cosine: np.ndarray) -> np.ndarray:
        """r [K, K], whose rows add up to 1; a node without a neighbour keeps what it has."""
        of = {
            "clip": lambda x: np.maximum(x, 0.0),
            "shift": lambda x: (1.0 + x) / 2.0,
            "softmax": lambda x: np.exp((x - 1.0) / self.temperature),
            "signed": lambda x: x,
        }
        s = of[self.similarity](cosine)
        if not self.self_loop:
            np.fill_diagonal(s, 0.0)
        total = s.sum(1)
        if self.similarity == "signed" and len(s) > 1 and (np.abs(total) < _LEAST_ROW_SUM).any():
            reason = "the signed similarities of a centre add up to nothing: take algorithm.similarity = 'clip'"
            raise RunFailed("server", reason)
        s[total == 0.0, total == 0.0] = 1.0
        return np.asarray(s / s.sum(1, keepdims=True))

    def _kept(self, all: Tensors, labels: torch.Tensor, what: torch.Tensor) -> Tensors:
        """What each client is due, with that of this round's clients."""
        now = labels != NONE
        due, seen = all["due"].clone(), all["seen"].clone()
        due[now], seen[now] = what[labels[now]], 1
        return {"due": due, "seen": seen}


def _centres(vectors: Sequence[torch.Tensor], labels: np.ndarray, weights: Sequence[float]) -> torch.Tensor:
    """The means [K, d] of the clusters 0 ... K - 1, none of which is empty."""
    return torch.stack([mean for mean in means(vectors, labels, int(labels.max()) + 1, weights) if mean is not None])


def _cosines(
    c: torch.Tensor,
    labels: np.ndarray,
    answers: Sequence[Answer],
    weights: Sequence[float],
    on: str,
    layout: Layout,
) -> np.ndarray:
    """cos(c_k, c_l) [K, K], of the centres, of what their members learnt, or of the last layer of the centres."""
    if on == "delta":
        c = _centres([answer.up["w"] - answer.down["what"] for answer in answers], labels, weights)
    if on == "head":
        last = layout.names[-1].rpartition(".")[0]
        start = next(layout.span(name).start for name in layout.names if name.rpartition(".")[0] == last)
        c = c[:, start:]
    return cosines(gram(list(c)))


def _spread(c: torch.Tensor) -> float:
    """The largest distance between two of the vectors [K, d]."""
    return float(np.sqrt(squared_distances(gram(list(c), c[0])).max()))
