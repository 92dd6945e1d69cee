"""A method of one's own: FedAvgM, FedAvg whose server has momentum (Hsu, Qi, Brown 2019, arXiv 1909.06335).

pflsim run launch/runs/start-here.toml --algorithm examples/fedavgm.py:FedAvgM --set algorithm.beta=0.5
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pflsim.federation import Answer, Client, Federation, Round, Tensors
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class FedAvgM:
    """v <- beta v + (mean of the answers - x), x <- x + v."""

    beta: float = 0.7  # momentum of the server

    def client_init(self, client: Client) -> Tensors:
        return {}  # private state: never leaves the client

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work()  # what client_step will compute, known before: it costs simulated time

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        return you, {"u": task.sgd(down["x"])}  # the new private state, and what travels up

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial, "v": federation.initial * 0}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        mean = average([answer.up["u"] for answer in answers], [answer.n_samples for answer in answers])
        if mean is None:  # nobody answered
            return all
        v = self.beta * all["v"] + mean - all["x"]
        return {"x": all["x"] + v, "v": v}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        return {"global": down["x"]}  # what is evaluated, headline first
