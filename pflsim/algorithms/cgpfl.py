"""CGPFL: personal models, each pulled towards the common model of its context, one of K that the server finds.

Tang, Guo, Guo: Personalized Federated Learning with Contextualized Generalization, IJCAI 2022, Algorithm 1.

Objective: min over theta_i of (1 / N) sum_i F_i(theta_i),  F_i = f_i(theta_i) + (lambda / 2) ||theta_i - omega_k||^2,
k the context of i, such that the omega_1 ... omega_K and the contexts C_k minimise the cost of k-means,
(1 / N) sum_k sum_{j in C_k} ||theta_j - omega_k||^2.                                                             (2)

A round:
    server      sends omega_k to each client in S_t, k = c(i) its context
    client i    w = omega_k; R times: one batch b,
                    Q times  theta <- theta - eta_p (g_i(theta; b) + lambda (theta - w) + mu theta)           line 8
                    w <- w - beta (w - theta)                                                                line 10
                sends w, keeps theta
    server      c <- k-means of the w_i into K clusters                                                       line 11
                omega_k <- (1 - alpha) omega_k + alpha mean of w_i, i in C_k;  an empty one stays as it is    line 14
With P (N x K, P_ik = 1 / |C_k| where i is in C_k) the last line is Omega <- (1 - alpha) Omega + alpha W P.
Communication per visit: 1 vector [d] down (omega_k), 1 up (w_i). Gradients per visit: R Q.
State: omega [K, d] and c at the server; theta_i and w_i [d] at the client, and eta_p. All begin at w0. A client that
is in no cluster yet is sent the mean of the omega_k that have members.

Readings. beta: the paper differentiates the mean over all clients, beta = 2 eta / N (`outer = "2/N"`), a step so small
that omega hardly moves; the default is that of pFedMe, which CGPFL is for K = 1: beta = eta lambda. theta goes on from
where it was (`theta_init = "persist"`), as the listing never sets it anew. alpha < 1 mixes the mean with the omega of
the same number, so k-means starts from the omega of before and the clusters keep their numbers (`align`); that
P' = P Q with a doubly stochastic Q holds only where nobody changes context, and is told as the measure `changed`.
Of a cohort that is not everybody the answers are clustered, and the others keep their context (`cluster_on`). The
clusters are of the uploads, for theta never leaves its client. eta_p is not given: min(0.1, 1 / (L + lambda)), L the
smoothness of f_i at w0. Without `lam` lambda is the paper's 12, or 1 / eta where 12 would overshoot.

Theorem 4.1 is about (1 / K) sum_k ||grad G_k||^2, G_k the mean of the envelopes F_i of the members of k, and about
(1 / N) sum_i ||theta_i - omega_k||^2. theta_i never leaves its client, but an upload tells how far w went in a visit,
    gap_i = (omega_k - w_i) / (beta R) = (1 / R) sum_r (w_r - theta_r),  and so  lambda gap_i  for  grad F_i(omega_k),
at the omegas that were sent and for the contexts that they were sent to. The measures `gradient_sq` and `gap_sq` are
(1 / K) sum_k ||lambda mean gap_i||^2 and (1 / N) sum_i ||gap_i||^2, in whole rounds. With R = 1 gap_i is itself
omega_k - theta_i, with more steps the mean along the visit, and gap_sq is then never more than the mean of the squares.
Also measured: `distances` between the omegas, and `kmeans_iterations` and `kmeans_cost`, (2) of the uploads.

Asynchronous form: an upload joins its nearest centre, omega_k <- (1 - a) omega_k + a w, a = alpha s(age) / |C_k|, and
after every `recluster_every` arrivals the last uploads of all clients are clustered. There are no clusters, and the
uploads wait, before `first_share` of the clients have sent one. Buffered: the round, on the buffer.
Stability: eta lambda < 2, without overshoot <= 1; eta_p (L + lambda) < 2; alpha in [0, 1].
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np
import torch

from pflsim.clustering.geometry import gram, squared_distances
from pflsim.clustering.kmeans import flops, kmeans
from pflsim.clustering.labels import NONE, aligned, nearest
from pflsim.clustering.uploads import last_uploads, remember
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average
from pflsim.moreau import Moreau

_PAPERS_LAMBDA = 12.0


@dataclass(frozen=True)
class CGPFL:
    """theta_i minimises f_i near w, which starts at omega_k; the omega_k are the centres of the w_i."""

    K: int = 4  # contexts
    lam: float | None = None  # lambda, how strongly theta and w pull at each other; None: 12, or 1 / eta if smaller
    alpha: float = 1.0  # how far an omega goes towards the mean of its members
    inner_steps: int = 5  # Q (the paper's S)
    eta_p: float | None = None  # step size of theta; None: min(0.1, 1 / (L + lambda)) for each client
    mu: float = 0.001  # weight decay of theta
    theta_init: Literal["persist", "round", "step"] = "persist"  # theta starts where it was, at omega, or at each w
    outer: Literal["lambda", "2/N"] = "lambda"  # beta = eta lambda, or 2 eta / N
    align: bool = True  # whether clusters keep their numbers; False: each clustering starts from nothing
    cluster_on: Literal["participants", "table"] = "participants"  # the answers, or the last upload of everybody
    max_age: int | None = None  # versions of the server after which an upload is clustered no more
    recluster_every: int | None = None  # arrivals, without rounds; None: N
    first_share: float = 0.5  # of the clients, whose uploads the first clustering waits for, without rounds
    eval_model: Literal["theta", "w_local"] = "theta"  # which is the headline; both are evaluated
    allow_unstable: bool = False

    mixes: ClassVar[bool] = False

    def check(self, federation: Federation) -> list[str]:
        _check_ranges(self)
        warnings = self._envelope.check(federation.training, beta_is_eta_lambda=self.outer == "lambda")
        if len(federation.clients) < self.K:
            warnings.append(f"algorithm.K = {self.K}: no more than {len(federation.clients)} clients have contexts")
        return warnings

    def client_init(self, client: Client) -> Tensors:
        return self._envelope.begin(client)

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work(passes=self.inner_steps)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        beta = None if self.outer == "lambda" else 2.0 * task.step_size / int(down["N"])
        you = self._envelope.descend(you, down["omega"], task, beta)
        return you, {"w": you["w"]}

    @property
    def _envelope(self) -> Moreau:
        shared = (self.inner_steps, self.eta_p, self.mu, self.theta_init, self.allow_unstable)
        return Moreau("cgpfl", self.lam, _PAPERS_LAMBDA, *shared)

    def server_init(self, federation: Federation) -> Tensors:
        labels = torch.full((len(federation.clients),), NONE)
        told = {"changed": torch.tensor(0.0), "kmeans": _nothing(), "progress": _nothing()}
        return {"omega": federation.initial.repeat(self.K, 1), "labels": labels, **told}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        k = int(all["labels"][client])
        omega = all["omega"][k] if k != NONE else _middle(all)
        size = {"N": torch.tensor([len(round.federation.clients)])} if self.outer == "2/N" else {}
        return {"omega": omega} | size

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        return self._folded(all, answers, [answer.weight for answer in answers], round, buffered=False)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self._folded(all, answers, weights, round, buffered=True)

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        N, i, w = len(round.federation.clients), answer.client, answer.up["w"]
        all = remember(all, {i: w}, N)
        has_clusters = bool((all["labels"] != NONE).any())
        uploads = last_uploads(all, self.max_age if has_clusters else None)
        is_due = int(all["version"]) % (self.recluster_every or N) == 0
        if is_due if has_clusters else len(uploads) >= self.first_share * N:
            return self._regrouped(all, uploads, None, round)
        if not has_clusters:
            return all
        active = _active(all)
        k = active[nearest(w, [all["omega"][k] for k in active])]
        labels, omega = all["labels"].clone(), all["omega"].clone()
        labels[i] = k
        omega[k] = mixed(omega[k], w, self.alpha * answer.weight / int((labels == k).sum()))
        return {**all, "omega": omega, "labels": labels}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        theta, w = {"personalised": you["theta"]}, {"local": you["w"]}
        first, second = (theta, w) if self.eval_model == "theta" else (w, theta)
        return {**first, **second, "cluster": down["omega"]}

    def measures(self, all: Tensors, round: Round) -> dict[str, object]:
        labels = all["labels"].numpy()
        told = {"labels": labels, "clusters": len(_active(all)), "changed": float(all["changed"])}
        distances = np.sqrt(squared_distances(gram(list(all["omega"]), all["omega"][0])))
        several = {"distances": distances} if len(distances) > 1 else {}
        names = {"kmeans": ("kmeans_iterations", "kmeans_cost"), "progress": ("gradient_sq", "gap_sq")}
        known = {key: all[key].tolist() for key in names if bool((all[key] >= 0.0).all())}
        pairs = [pair for key, values in known.items() for pair in zip(names[key], values, strict=True)]
        return told | several | dict(pairs)

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        N, d = len(federation.clients), len(federation.initial)
        if len(answers) == 1 and self.cluster_on == "participants":  # an arrival, with its share of the next clustering
            return 2.0 * d * (self.K + N)
        return flops(len(answers) if self.cluster_on == "participants" else N, d, self.K)

    def _folded(
        self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round, buffered: bool
    ) -> Tensors:
        """The state after a round, or a buffer."""
        if not answers:
            return all
        if not buffered:  # where the answers are of one round
            lam = self._envelope.strength(round.federation.training)
            beta = round.step_size * (lam if self.outer == "lambda" else 2.0 / len(round.federation.clients))
            all = {**all, "progress": _progress(answers, all["labels"], beta, lam, round.federation)}
        came = [(answer.client, answer.up["w"]) for answer in answers]
        if self.cluster_on == "participants":
            return self._regrouped(all, came, weights, round, buffered)
        all = remember(all, dict(came), len(round.federation.clients))
        return self._regrouped(all, last_uploads(all, self.max_age), None, round, buffered)

    def _regrouped(
        self,
        all: Tensors,
        uploads: Sequence[tuple[int, torch.Tensor]],
        weights: Sequence[float] | None,
        round: Round,
        buffered: bool = False,
    ) -> Tensors:
        """These uploads, of which client, in new clusters, and each omega moved towards its members."""
        clients, points = [client for client, _ in uploads], [w for _, w in uploads]
        shares = [1.0] * len(points) if weights is None else weights
        before, labels = all["labels"].numpy(), all["labels"].numpy().copy()
        continues = self.align and bool((before != NONE).any())
        found, kmeans = _clusters(points, shares, all["omega"], before[clients] if continues else None, round)
        labels[clients] = found
        omega = []
        for k, old in enumerate(all["omega"]):
            members = np.flatnonzero(found == k).tolist()
            ends = [points[j] for j in members]
            omega.append(_towards(old, ends, [shares[j] for j in members], self.alpha, buffered))
        changed = torch.tensor(float((labels != before)[clients].mean()))
        state = {"omega": torch.stack(omega), "labels": torch.from_numpy(labels), "changed": changed, "kmeans": kmeans}
        return {**all, **state}


def _check_ranges(method: CGPFL) -> None:
    require_number("algorithm.K", method.K, 1)
    if not 0.0 <= method.alpha <= 1.0 and not method.allow_unstable:
        raise DescriptionError("algorithm.alpha", method.alpha, "must be from 0 to 1")
    if not 0.0 < method.first_share <= 1.0:
        raise DescriptionError("algorithm.first_share", method.first_share, "must be above 0 and at most 1")
    for name in ("max_age", "recluster_every"):
        if (value := getattr(method, name)) is not None:
            require_number(f"algorithm.{name}", value, 1)


def _clusters(
    points: Sequence[torch.Tensor],
    weights: Sequence[float],
    omega: torch.Tensor,
    before: np.ndarray | None,
    round: Round,
) -> tuple[np.ndarray, torch.Tensor]:
    """The cluster of each upload, and the iterations and the cost; clusters `before` go on and keep their numbers."""
    warm = None if before is None else list(omega)
    found = kmeans(points, len(omega), round.rng("k-means"), weights=weights, warm=warm)
    labels = found.labels if before is None else aligned(found.labels, before, points, list(omega))
    return labels, torch.tensor([found.iterations, found.inertia / sum(weights)], dtype=torch.float64)


def _progress(
    answers: Sequence[Answer], labels: torch.Tensor, beta: float, lam: float, federation: Federation
) -> torch.Tensor:
    """gradient_sq and gap_sq, by the contexts `labels` [N] that the omegas were sent to; those in none are one."""
    training, gaps = federation.training, defaultdict(list)
    for answer in answers:
        batches = -(-int(federation.sizes[answer.client]) // training.batch)
        R = training.local_steps or batches * (training.local_epochs or 0)
        if not beta * R:
            return _nothing()
        gaps[int(labels[answer.client])].append((answer.down["omega"] - answer.up["w"]) / (beta * R))
    means = [average(own, [1.0] * len(own)) for own in gaps.values()]
    slopes = [float(lam * mean.double().norm()) ** 2 for mean in means if mean is not None]
    squares = [float(gap.double().norm()) ** 2 for own in gaps.values() for gap in own]
    return torch.tensor([fmean(slopes), fmean(squares)], dtype=torch.float64)


def _nothing() -> torch.Tensor:
    """What stands for two numbers that are not known."""
    return torch.full((2,), -1.0, dtype=torch.float64)


def _towards(
    old: torch.Tensor, ends: Sequence[torch.Tensor], weights: Sequence[float], alpha: float, buffered: bool
) -> torch.Tensor:
    """An omega after its members' uploads `ends`; as it was, where it has none."""
    if not ends:
        return old
    if buffered:
        return moved(old, [old] * len(ends), ends, [alpha * weight for weight in weights])
    mean = average(ends, weights)
    return old if mean is None else (1.0 - alpha) * old + alpha * mean


def _active(all: Tensors) -> list[int]:
    """The clusters that have members."""
    labels: list[int] = all["labels"].tolist()
    return sorted(set(labels) - {NONE})


def _middle(all: Tensors) -> torch.Tensor:
    """The mean [d] of the omegas that have members, unweighted; before there are any, w0."""
    active = _active(all)
    mean = average([all["omega"][k] for k in active], [1.0] * len(active))
    return all["omega"][0] if mean is None else mean
