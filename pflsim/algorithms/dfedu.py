"""dFedU: FedU without a server; every peer keeps its model and pulls it towards those of its neighbours.

Dinh, Vu, Tran, Dao, Zhang: A New Look and Convergence Rate of Federated Multi-Task Learning with Laplacian
Regularization, Algorithm 2. The objective is that of FedU (`pflsim.algorithms.fedu`).

A round of peer k:
    v_k  <- R SGD steps on f_k from w_k with step size mu
    sends v_k to its neighbours, and has v_l of each
    w_k  <- v_k - c sum_l a_kl (v_k - v_l),   c = mu~ eta_r,  mu~ = mu R
                                              (normalised: c = mu~ eta_r / lambda_max(L))
In rounds among all neighbours that is FedU with S_t = all, bit for bit. With old models of neighbours (asynchronous),
or with those that happened to come (push), the step is the same on what there is; in pairs, both ends move by
c a_kl (v_l - v_k), which keeps the mean and needs 2 c a_kl <= 1. These forms are extensions of ours.
Communication per round: 1 vector [d] to each neighbour, 1 from each. State: w_k [d].

Stability: c lambda_max(L) < 2 in every round's graph, without overshoot <= 1; for graphs that change, the bound
lambda_max(L) <= 2 max_k D_k counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pflsim.errors import DescriptionError
from pflsim.federation import (
    Client,
    Federation,
    Neighbour,
    Round,
    Tensors,
    laplacian_coefficient,
    pulled,
    require_number,
    require_stable,
)
from pflsim.learning.task import Task, Work


@dataclass(frozen=True)
class DFedU:
    """Local SGD, and one Laplacian step on what the neighbours show."""

    eta_r: float = 0.01  # eta, the weight of the regularisation; the paper tries 0.001 to 1
    reg_R: Literal["epochs", "steps"] = "epochs"  # noqa: N815  # what R means in mu~ = mu R
    reg_scale: float = 1.0  # a factor on the regularisation
    normalised: bool = False  # divide the graph by lambda_max(L), so that eta_r suits any number of peers
    allow_unstable: bool = False

    def check(self, federation: Federation) -> list[str]:
        if federation.topology is None:
            raise DescriptionError("topology", None, "dfedu needs a graph between the peers, such as ring or similar")
        require_number("algorithm.eta_r", self.eta_r, 0)
        require_number("algorithm.reg_scale", self.reg_scale, 0)
        factor = self._c(federation, federation.training.step_size) * federation.lambda_max
        formula = "c lambda_max(L) with c = mu R eta_r reg_scale" + " / lambda_max(L)" * self.normalised
        return require_stable("algorithm.eta_r", self.eta_r, factor, formula, self.allow_unstable)

    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return {"w": task.sgd(you["w"])}, {}

    def peer_shows(self, you: Tensors) -> Tensors:
        return you

    def peer_step(self, you: Tensors, neighbours: Sequence[Neighbour], round: Round) -> Tensors:
        c = self._c(round.federation, round.step_size)
        others = [neighbour.shown["w"] for neighbour in neighbours]
        return {"w": pulled(you["w"], others, [c * neighbour.weight for neighbour in neighbours])}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"personalised": you["w"]}

    def _c(self, federation: Federation, step_size: float) -> float:
        return laplacian_coefficient(
            federation, step_size, self.eta_r * self.reg_scale, self.reg_R, normalised=self.normalised
        )
