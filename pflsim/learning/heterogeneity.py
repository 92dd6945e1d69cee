"""How unlike clients are: between and within groups of them, and between the samples of one client.

The constants of assumptions 3 and 4, and the condition of corollary 3.2, of "A personalized federated learning method
based on stratified sampling" (in Chinese), measured at one model w instead of bounded for all:

    gamma = max_m ||grad f_m - grad f_sigma(m)||     f_sigma the mean of the f_m of the group of m
    alpha = max_groups ||grad f_sigma - grad f||     f the mean of all f_m
    sigma^2 = max_m (1 / n_m) sum_j ||grad f_m(w; j) - grad f_m(w)||^2    over single samples j
    more groups help if  gamma^2 >= (M - 1)^2 sigma^2 / (tau M (N - 1)),  N of M clients a round, tau steps each
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch

from pflsim.learning.task import Task
from pflsim.learning.whole_data import full_gradient


@dataclass(frozen=True)
class Heterogeneity:
    """Of the gradients at one model: the largest, which the theory takes, and the root of the mean square."""

    gamma: float
    gamma_rms: float  # over clients
    alpha: float
    alpha_rms: float  # over groups


def heterogeneity(gradients: torch.Tensor, groups: Sequence[Sequence[int]]) -> Heterogeneity:
    """gamma and alpha of clients' gradients [N, d] in `groups`, which have every client once."""
    all, middles = gradients.double(), []
    within = torch.zeros(len(all), dtype=torch.float64)
    for group in map(list, groups):
        middles.append(all[group].mean(0))
        within[group] = (all[group] - middles[-1]).norm(dim=1)
    between = (torch.stack(middles) - all.mean(0)).norm(dim=1)
    return Heterogeneity(float(within.max()), _rms(within), float(between.max()), _rms(between))


def sample_variance(task: Task, w: torch.Tensor, most: int) -> float:
    """sigma^2 of one client at `w`, from `most` samples drawn without replacement; exact if it has no more."""
    alone = replace(task, training=replace(task.training, batch=1))
    mean = full_gradient(task, w)
    apart = [
        float((task.grad(w, one).double() - mean.double()).square().sum())
        for one in islice(alone.batches(task.n_samples, "variance"), most)
    ]
    return sum(apart) / len(apart)


def least_gamma_sq(sigma_sq: float, clients: int, cohort: int, steps: float) -> float:
    """The right hand side of the condition; infinite for a single client a round, of which it says nothing."""
    if cohort < 2:
        return float("inf")
    return (clients - 1) ** 2 * sigma_sq / (steps * clients * (cohort - 1))


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())
