"""Clients that do only part of a visit: who they are in a round, and how much of it they do.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020, section 5.2:
a share of the clients that were drawn has time for 1 to E - 1 of its E local epochs, uniformly. The authors' code calls
the share `drop_percent`, because FedAvg drops these clients while FedProx takes what they have done.

Who straggles depends on (seed, round, cohort) and nothing else, so that the same clients straggle under every method.
The server tells a straggler its part; it travels with the model, as one number.
"""

import torch

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round, Tensors
from pflsim.learning.task import Task, Work

_PART = "part"  # epochs, or steps where the length of a visit is given in steps


def stragglers(share: float, round: Round) -> dict[int, int]:
    """How much each straggler of a round does: epochs, or steps where `training.local_steps` is given; at least 1."""
    cohort, training = round.cohort, round.federation.training
    whole = training.local_epochs or training.local_steps or 1
    rng = round.rng("stragglers")
    count = len(cohort) - int(len(cohort) * (1 - share) + 0.5)
    chosen = rng.permutation(len(cohort))[:count].tolist()
    parts = rng.integers(1, max(2, whole), len(cohort)).tolist()
    return {cohort[place]: parts[place] for place in sorted(chosen)}


def told(share: float, client: int, round: Round) -> Tensors:
    """What travels down to `client` beside the model: its part, if it straggles; else nothing."""
    if share == 0:
        return {}
    parts = stragglers(share, round)
    return {_PART: torch.tensor([parts[client]])} if client in parts else {}


def steps_of(task: Task, down: Tensors) -> int:
    """The steps of this visit, all of them where nothing else was told."""
    if _PART not in down:
        return task.steps
    part, training = int(down[_PART]), task.training
    return min(
        task.steps, training.steps(task.n_samples) * part // (training.local_epochs or training.local_steps or 1)
    )


def work_of(task: Task, down: Tensors) -> Work:
    """What these steps cost with one gradient each."""
    samples = task.training.samples(task.n_samples, steps_of(task, down))
    return Work(samples, samples)


def straggled(answer: Answer) -> bool:
    """Whether its client had been told to do a part only."""
    return _PART in answer.down


def require_share(share: float) -> None:
    """Refuses what is no share. Raises DescriptionError."""
    if not 0 <= share <= 1:
        raise DescriptionError("algorithm.drop_percent", share, "must be a share from 0 to 1")
