"""D-PSGD: every peer takes SGD steps and averages its model with its neighbours', without a server.

Lian, Zhang, Zhang, Hsieh, Zhang, Liu: Can Decentralized Algorithms Outperform Centralized Algorithms?, Algorithm 1.

Objective: min over w of (1/N) sum_k f_k(w)
A round of peer k:
    v_k  <- R SGD steps on f_k from w_k with step size eta
    sends v_k to its neighbours, and has v_l of each
    w_k  <- W_kk v_k + sum_l W_kl v_l
with W the Metropolis-Hastings matrix of the round's graph: W_kl = 1 / (1 + max(deg k, deg l)), symmetric and doubly
stochastic. The paper has R = 1 and takes the gradient at w_k while it averages w_k; here the models that are
averaged have taken their steps, so that R may be anything.
In pairs it is AD-PSGD, (v_k + v_l) / 2; where random models come (push, epidemic), they and the own count alike.
Communication per round: 1 vector [d] to each neighbour, 1 from each. State: w_k [d].
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pflsim.errors import DescriptionError
from pflsim.federation import Client, Federation, Neighbour, Round, Tensors, pulled
from pflsim.learning.task import Task, Work


@dataclass(frozen=True)
class DPSGD:
    """Local SGD, and a weighted average with what the neighbours show."""

    def check(self, federation: Federation) -> list[str]:
        if federation.topology is None:
            raise DescriptionError("topology", None, "dpsgd needs a graph between the peers, such as ring or regular")
        return []

    def client_init(self, client: Client) -> Tensors:
        return {"w": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return {"w": task.sgd(you["w"])}, {}

    def peer_shows(self, you: Tensors) -> Tensors:
        return you

    def peer_step(self, you: Tensors, neighbours: Sequence[Neighbour], round: Round) -> Tensors:
        others = [neighbour.shown["w"] for neighbour in neighbours]
        return {"w": pulled(you["w"], others, [neighbour.share for neighbour in neighbours])}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"global": you["w"]}
