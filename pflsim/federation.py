"""What a method may know: its client, the federation, the round, and the answers that came in.

Private states, server states and everything that travels are plain dictionaries of tensors (`Tensors`), so
that one piece of code can put any method's state on the wire, into a snapshot, and into the digest. What
several methods share of arithmetic is here too, beside `pflsim.learning.vector.average`: the Laplacian step and the
test of a step size.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from pflsim.errors import DescriptionError
from pflsim.learning.task import Task, Training
from pflsim.learning.vector import Layout
from pflsim.rng import stream
from pflsim.topology import Topology, lambda_max

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Client:
    """A client before its first visit; what `client_init` makes the private state from."""

    id: int
    n_samples: int  # training samples, n_i
    labels: tuple[int, ...]  # the labels that occur in its training samples
    initial: torch.Tensor  # w0 [d], the same for everybody with this model
    layout: Layout
    training: Training
    seed: int
    task: Task = field(repr=False)  # its data; work done on it here is set-up and costs no simulated time

    def rng(self, purpose: str) -> np.random.Generator:
        """This client's own stream for `purpose` during set-up."""
        return stream(self.seed, purpose, self.id, "set-up")


@dataclass(frozen=True)
class Federation:
    """What the server knows of everybody before the first round."""

    clients: range
    sizes: np.ndarray  # [N] int64, training samples of each client, n_i
    labels: tuple[tuple[int, ...], ...]
    graph: np.ndarray | None  # [N, N] float64, a_kl of the topology in the first round, where there is one
    initial: torch.Tensor  # w0 [d]
    layout: Layout
    training: Training
    seed: int
    new_initial: Callable[[np.random.Generator], torch.Tensor] = field(repr=False)
    """Another starting vector [d], drawn as w0 was; for methods that start from several."""
    public: int = 0  # samples that everybody has, without labels
    topology: Topology | None = None  # the same in every round

    def graph_in(self, round: int) -> np.ndarray:
        """The weights a_kl [N, N] in round `round`, from 0; only for a federation that has a graph."""
        if self.topology is not None:
            return self.topology.at(round)
        assert self.graph is not None
        return self.graph

    @cached_property
    def lambda_max(self) -> float:
        """The largest eigenvalue of the Laplacian of `graph`, 0 without one; once, for it costs N^3.

        Where the graph changes, what it never exceeds. To nine digits, so that how many threads worked it out does not
        show in a model.
        """
        if self.topology is not None and self.topology.changes:
            return self.topology.bound
        return 0.0 if self.graph is None else float(f"{lambda_max(self.graph):.9g}")

    @cached_property
    def mean_batches(self) -> float:
        """How many batches an epoch has, mean over the clients."""
        return float(np.ceil(self.sizes / self.training.batch).mean())

    def rng(self, purpose: str) -> np.random.Generator:
        """The server's stream for `purpose` during set-up."""
        return stream(self.seed, purpose, "server", "set-up")


@dataclass(frozen=True)
class Round:
    """One round at the server, from drawing the cohort to folding in the answers."""

    number: int  # from 0
    cohort: tuple[int, ...]  # S_t: the clients that were drawn, ascending; `participants` may let others work too
    federation: Federation
    step_size: float  # eta at this round

    def rng(self, purpose: str) -> np.random.Generator:
        """The server's stream for `purpose` in this round."""
        return stream(self.federation.seed, purpose, "server", self.number)


@dataclass(frozen=True)
class Answer:
    """What one client sent back. The server gets them sorted by client id."""

    client: int
    up: Tensors
    down: Tensors  # what it answers
    age: int  # how many times the server's model has changed since `down` was sent
    n_samples: int
    weight: float = 1.0  # what the schedule makes of an answer that came late; 1 for all others


@dataclass(frozen=True)
class Neighbour:
    """What a peer has of one neighbour when it learns from it. It gets them sorted by client id."""

    client: int
    shown: Tensors
    weight: float  # a_kl of the graph
    share: float  # of the neighbour's model in a mixture; with the own model's they sum to 1


def mixed(old: torch.Tensor, new: torch.Tensor, weight: float) -> torch.Tensor:
    """(1 - weight) old + weight new, [d]: how an asynchronous server takes in one answer."""
    return (old.double() * (1 - weight) + new.double() * weight).to(old.dtype)


def moved(
    x: torch.Tensor, starts: Sequence[torch.Tensor], ends: Sequence[torch.Tensor], weights: Sequence[float]
) -> torch.Tensor:
    """x + (1/K) sum_j weight_j (end_j - start_j), [d]: how a buffered server takes in K answers."""
    total = torch.zeros_like(x, dtype=torch.float64)
    for start, end, weight in zip(starts, ends, weights, strict=True):
        total.add_(end.double() - start.double(), alpha=weight)
    return (x.double() + total / len(ends)).to(x.dtype)


def pulled(own: torch.Tensor, others: Sequence[torch.Tensor], strengths: Iterable[float]) -> torch.Tensor:
    """A Laplacian step of one node, own - sum_l s_l (own - other_l) [d]: towards each of the others.

    Sums in the order given, which is ascending client id, in float64, and rounds once to the type of `own`.
    """
    pulls = [float(strength) for strength in strengths]
    moved = own.double() * (1.0 - sum(pulls))
    for other, pull in zip(others, pulls, strict=True):
        moved.add_(other, alpha=pull)
    return moved.to(own.dtype)


def laplacian_coefficient(
    federation: Federation,
    step_size: float,
    strength: float,
    reg_R: Literal["epochs", "steps"],  # the paper's R
    *,
    normalised: bool,
) -> float:
    """c = mu R eta_r of a Laplacian step with the `strength` eta_r; if `normalised` over lambda_max(L).

    R is the mean over clients, of epochs or of steps, so that the step is a symmetric one.
    """
    training = federation.training
    batches = federation.mean_batches
    epochs = training.local_epochs or (training.local_steps or 0) / batches
    R = epochs if reg_R == "epochs" else training.local_steps or epochs * batches
    largest = (normalised and federation.lambda_max) or 1.0  # it is 0 where there is no edge
    return step_size * R * strength / largest


def require_number(key: str, value: float, least: float, *, above: bool = False) -> None:
    """Refuses what is not a finite number from `least` (or `above` it). Raises DescriptionError naming `key`."""
    if not (value > least if above else value >= least) or value == math.inf:
        raise DescriptionError(key, value, f"must be a finite number {'above' if above else 'from'} {least:g}")


def require_stable(key: str, value: object, factor: float, formula: str, allow_unstable: bool) -> list[str]:
    """Refuses a step whose `factor` is 2 or more: it diverges. Above 1 it overshoots: a warning is returned.

    `formula` says in symbols what `factor` is; negative or not finite, it is refused in any case. Raises
    DescriptionError naming `key`.
    """
    if not 0.0 <= factor < math.inf:
        raise DescriptionError(key, value, f"{formula} = {factor:.4g} must be a finite number from 0")
    if factor >= 2.0 and not allow_unstable:
        reason = f"{formula} = {factor:.4g} must be below 2 or the method diverges"
        raise DescriptionError(key, value, f"{reason}; allow_unstable = true lets it run")
    return [f"{key} = {value!r}: {formula} = {factor:.4g} is above 1, so it overshoots"] if factor > 1.0 else []
