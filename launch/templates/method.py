"""MyMethod: in one sentence what it does, and where it is written down.

Here: FedAvg, beside which each client keeps a personal model that is pulled towards the common one (as in Ditto, Li,
Hu, Beirami, Smith 2021). Change what you like, then:

    pflsim check-method my_method.py:MyMethod
    pflsim run my_method.toml
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pflsim.federation import Answer, Client, Federation, Round, Tensors
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class MyMethod:
    """The fields are the settings. All models are flat vectors [d], and no function may change its arguments."""

    lam: float = 0.5  # how strongly a personal model is pulled towards the common one

    def client_init(self, client: Client) -> Tensors:
        """The private state before the first visit; it never leaves the client."""
        return {"v": client.initial}

    def client_work(self, task: Task, down: Tensors) -> Work:
        """Exactly what `client_step` will compute: two passes of descent. It costs simulated time."""
        return task.work(passes=2)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        """One visit: the new private state, and what travels up."""
        x = down["x"]

        def pull(v: torch.Tensor) -> torch.Tensor:
            return self.lam * (v - x)

        common = task.sgd(x)
        personal = task.sgd(you["v"], extra=pull, purpose="personal")
        return {"v": personal}, {"u": common}

    def server_init(self, federation: Federation) -> Tensors:
        """The server's state before the first round."""
        return {"x": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        """What travels down to a client."""
        return {"x": all["x"]}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        """The server's state after a round; answers come in ascending client id, and there may be none."""
        mean = average([answer.up["u"] for answer in answers], [answer.n_samples for answer in answers])
        return all if mean is None else {"x": mean}

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Tensors:
        """What is evaluated on a client, headline first."""
        return {"personalised": you["v"], "global": down["x"]}
