"""FedAvg: one model for everybody, the average of the clients' local training.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, Algorithm 1.

Objective: min over w of sum_i p_i f_i(w), with p_i = n_i / n ("samples") or 1 / N ("uniform").

A round:
    server      sends x to the clients in S_t
    client i    u_i <- R SGD steps on f_i from x                 ClientUpdate
    server      x   <- sum_i p_i u_i / sum_i p_i, i in S_t       w_{t+1} <- sum_k (n_k / n) w_{t+1}^k
Where visits differ in their numbers of steps tau_i (a deadline with late = "partial", training.local_s), `normalise`
takes each client's mean step instead, as FedNova does for SGD (Wang, Liu, Liang, Joshi, Poor, NeurIPS 2020, eq. 8):
    server      x   <- x + (sum_i p_i tau_i) sum_i p_i (u_i - x) / tau_i

With `drop_percent` a share of the cohort has time for a part of the visit only (see `pflsim.stragglers`); its answers
come, and are dropped, or averaged like all others (`stragglers` = "aggregate").

Communication per visit: 1 vector [d] down (x), 1 up (u_i, or u_i - x with upload = "delta").
State: x at the server; nothing at the client.
Asynchronous form: x <- (1 - a) x + a u_i; buffered, x <- x + mean of rate s(age) (u_i - x_i).

Evaluated: `global` is x; `finetuned` (FedAvg-FT) is x after the local training of one more visit on the
client.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved
from pflsim.learning.task import Task, Work
from pflsim.learning.vector import average
from pflsim.stragglers import require_share, steps_of, straggled, told, work_of


@dataclass(frozen=True)
class FedAvg:
    """x <- the mean of what local SGD made of x."""

    weights: Literal["samples", "uniform"] = "samples"  # p_i
    upload: Literal["model", "delta"] = "model"  # u_i, or u_i - x: the same average up to rounding
    normalise: bool = False  # by the number of steps, as FedNova does, where clients take different numbers
    finetune: bool = True  # whether the fine-tuned model is evaluated too
    drop_percent: float = (
        0.0  # the share, 0 to 1, of a cohort that does only part of its work; the paper has 0, 0.5, 0.9
    )
    stragglers: Literal["drop", "aggregate"] = "drop"  # what becomes of their answers

    def check(self, federation: Federation) -> list[str]:
        require_share(self.drop_percent)
        return []

    def client_init(self, client: Client) -> Tensors:
        return {}

    def client_work(self, task: Task, down: Tensors) -> Work:
        return work_of(task, down)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        x, steps = down["x"], steps_of(task, down)
        u = task.sgd(x, steps=steps)
        up = {"u": u - x if self.upload == "delta" else u}
        return you, up | {"steps": torch.tensor([steps])} if self.normalise else up

    def server_init(self, federation: Federation) -> Tensors:
        return {"x": federation.initial}

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return {"x": all["x"], **told(self.drop_percent, client, round)}

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        answers = [answer for answer in answers if self._takes(answer)]
        p = [answer.weight * (answer.n_samples if self.weights == "samples" else 1) for answer in answers]
        if self.normalise:
            return self._normalised(all, answers, p)
        mean = average([answer.up["u"] for answer in answers], p)
        if mean is None:
            return all
        return {"x": all["x"] + mean if self.upload == "delta" else mean}

    def _normalised(self, all: Tensors, answers: Sequence[Answer], p: Sequence[float]) -> Tensors:
        """x + (sum_i p_i tau_i) sum_i p_i (u_i - x_i) / tau_i, the p_i adding up to 1."""
        tau = [float(answer.up["steps"]) for answer in answers]
        per_step = [
            (self._trained(answer) - answer.down["x"]) / max(1.0, t) for answer, t in zip(answers, tau, strict=True)
        ]
        mean = average(per_step, p)
        if mean is None:
            return all
        effective = sum(weight * t for weight, t in zip(p, tau, strict=True)) / sum(p)
        return {"x": all["x"] + effective * mean}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {"x": mixed(all["x"], self._trained(answer), weight)} if self._takes(answer) else all

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        taken = [place for place, answer in enumerate(answers) if self._takes(answer)]
        if not taken:
            return all
        starts, ends = [answers[k].down["x"] for k in taken], [self._trained(answers[k]) for k in taken]
        return {"x": moved(all["x"], starts, ends, [weights[k] for k in taken])}

    def _takes(self, answer: Answer) -> bool:
        return self.stragglers == "aggregate" or not straggled(answer)

    def _trained(self, answer: Answer) -> torch.Tensor:
        return answer.down["x"] + answer.up["u"] if self.upload == "delta" else answer.up["u"]

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> dict[str, torch.Tensor]:
        models = {"global": down["x"]}
        if self.finetune:
            models["finetuned"] = task.sgd(down["x"], purpose="finetune")
        return models

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 2.0 * len(federation.initial) * len(answers)
