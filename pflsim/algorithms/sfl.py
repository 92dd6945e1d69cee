"""SFL: the server smooths the clients' models over a graph, and each client trains near what comes out.

Chen, Long, Wu, Zhou, Jiang: Personalized Federated Learning with a Graph, IJCAI 2022, Algorithm 1.

Objective of client i in a round: min over w of f_i(w) + reg_u ||w - u_i|| + reg_z ||w - z||.

A round:
    server      sends u_i and z to the clients in S_t
    client i    w <- z;  R times  w <- w - eta (g_i(w; b) + reg_u (w - u_i) / ||w - u_i|| + reg_z (w - z) / ||w - z||)
                sends w
    server      replaces row i of W by w
                U <- (A^)^l W;  u_i <- serveralpha U_i + (1 - serveralpha) w_i
                z <- mean of all u_i                                                                       (readout)
A^ is the graph with a loop of weight 1 at each node, divided by the row sums; l the number of `layers`.
The graph is the run's topology; without one, two clients are linked where they train on a common class.

`learned` > 0 is SFL*: A <- (1 - learned) A + learned A', where A' links each client with the `nearest` models, weighed
by how near they are; both with loops and divided by their row sums.

Communication per visit: 2 vectors [d] down (u_i, z), 1 up (w_i). State: W [N, d], the last upload of each client (w0 at
first), z and (A^)^l [N, N] at the server; the w_i of its last visit at the client, to be evaluated. Who is not drawn
keeps its row. Asynchronous form: an arrival replaces its row, and u_i is row i of (A^)^l W as it is when client i works
next; no alpha, and no weight for its age.

Readings. Norms are not squared, with weights of 0.3, as in the authors' code; where a norm is 0, its gradient is 0.
`squared` takes (reg / 2) ||.||^2 (stable for eta (reg_u + reg_z) < 2). Their optimiser (momentum, triangular step
sizes) is the training's matter. Their A' comes from some epochs of training a small graph on pairwise distances; here
it is the distances themselves: exp(-||w_i - w_j||^2 / mean), mean over the pairs.
Evaluated: `personalised` is u_i as it would be received, `local` is w_i as its last visit left it, `global` is z.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, require_number, require_stable
from pflsim.learning.task import Task, Work


@dataclass(frozen=True)
class SFL:
    """Local training near u_i and z; the graph makes u_i of everybody's w."""

    layers: int = 3  # l, how often the models are smoothed
    reg_u: float = 0.3  # pull towards u_i
    reg_z: float = 0.3  # pull towards z
    serveralpha: float = 1.0  # the share of the smoothed model in u_i
    squared: bool = False  # squared norms instead of norms
    learned: float = 0.0  # the share of the learned graph; SFL* has 0.05
    nearest: int = 30  # k, how many neighbours the learned graph gives each client
    allow_unstable: bool = False

    mixes: ClassVar[bool] = False

    def check(self, federation: Federation) -> list[str]:
        require_number("algorithm.layers", self.layers, 0)
        require_number("algorithm.reg_u", self.reg_u, 0)
        require_number("algorithm.reg_z", self.reg_z, 0)
        require_number("algorithm.nearest", self.nearest, 1)
        for name in ("serveralpha", "learned"):
            if not 0 <= getattr(self, name) <= 1:
                raise DescriptionError(f"algorithm.{name}", getattr(self, name), "must be from 0 to 1")
        if not self.squared:
            return []
        factor = federation.training.step_size * (self.reg_u + self.reg_z)
        return require_stable("algorithm.reg_u", self.reg_u, factor, "eta (reg_u + reg_z)", self.allow_unstable)

    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        u, z = down["u"], down["z"]
        w = task.sgd(z, extra=lambda w: self.reg_u * self._pull(w - u) + self.reg_z * self._pull(w - z))
        return {"w": w}, {"w": w}

    def _pull(self, apart: torch.Tensor) -> torch.Tensor:
        """The gradient of ||apart|| or of (1/2) ||apart||^2, [d]; 0 at 0."""
        length = float(apart.norm())
        return apart if self.squared or length == 0.0 else apart / length

    def server_init(self, federation: Federation) -> Tensors:
        w = federation.initial.repeat(len(federation.clients), 1)
        return self._read_out(w, self._smoothing(w, federation))

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        w = all["w"]
        smoothed = _combined(all["smooth"][client], w).mul(self.serveralpha)
        return {"u": smoothed.add(w[client], alpha=1.0 - self.serveralpha).to(w.dtype), "z": all["z"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        if not answers:
            return all
        w = all["w"].clone()
        for answer in answers:
            w[answer.client] = answer.up["w"]
        return self._read_out(w, self._smoothing(w, round.federation) if self.learned else all["smooth"])

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return self.server_step(all, [answer], round)

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        return self.server_step(all, answers, round)

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": down["u"], "local": you["w"], "global": down["z"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        N = len(federation.clients)
        return 2.0 * len(federation.initial) * N * (1 + len(answers) + (N if self.learned else 0))

    def _smoothing(self, w: torch.Tensor, federation: Federation) -> torch.Tensor:
        """(A^)^l [N, N]; the last uploads [N, d] matter where the graph is learned."""
        A = _with_loops(_graph(federation))
        if self.learned:
            A = (1.0 - self.learned) * A + self.learned * _with_loops(_nearness(w, self.nearest))
        smooth: torch.Tensor = torch.linalg.matrix_power(A, self.layers)
        return smooth

    def _read_out(self, w: torch.Tensor, smooth: torch.Tensor) -> Tensors:
        """The server's state with these last uploads [N, d], and z with them."""
        share = self.serveralpha * smooth.mean(0) + (1.0 - self.serveralpha) / len(w)
        return {"w": w, "smooth": smooth, "z": _combined(share, w).to(w.dtype)}


def _graph(federation: Federation) -> torch.Tensor:
    """The weights between clients [N, N]: the topology's, or 1 where two train on a common class."""
    if federation.graph is not None:
        return torch.tensor(federation.graph)
    classes = sorted({label for own in federation.labels for label in own})
    has = np.array([[label in own for label in classes] for own in map(set, federation.labels)], dtype=float)
    linked = torch.from_numpy(has @ has.T > 0).double()
    return linked.fill_diagonal_(0.0)


def _with_loops(graph: torch.Tensor) -> torch.Tensor:
    """A^ [N, N]: with a loop of weight 1 at each node, and rows that add up to 1."""
    loops = graph + torch.eye(len(graph), dtype=graph.dtype)
    return loops / loops.sum(1, keepdim=True)


def _nearness(w: torch.Tensor, k: int) -> torch.Tensor:
    """A' [N, N]: exp(-distance^2 / mean) for the k nearest of the models [N, d], 0 for the others and itself."""
    wide = w.double()
    squares = wide.square().sum(1)
    distances = (squares[:, None] + squares - 2.0 * wide @ wide.T).clamp(min=0.0)
    N = len(w)
    mean = float(distances.sum()) / max(1, N * (N - 1))
    near = torch.exp(-distances / mean) if mean > 0.0 else torch.ones_like(distances)
    near.fill_diagonal_(0.0)
    kept = near.topk(min(k, N)).indices
    return torch.zeros_like(near).scatter_(1, kept, near.gather(1, kept))


def _combined(shares: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """sum_j share_j w_j [d] in float64, in ascending order of j."""
    total = torch.zeros(w.shape[1], dtype=torch.float64)
    for share, row in zip(shares.tolist(), w, strict=True):
        if share:
            total.add_(row, alpha=share)
    return total
