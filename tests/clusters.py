"""Federations with planted clusters, for the tests of clustered methods."""

from collections.abc import Sequence

import numpy as np
import torch

from pflsim.federation import Answer, Round, Tensors
from tests.problems import Study, quadratics


def planted(groups: int = 2, each: int = 3, apart: float = 100.0, d: int = 3, **training: object) -> Study:
    """Clients i = 0, 1, ... of which i mod `groups` is the group; the optima of different groups lie far apart."""
    rng = np.random.default_rng(5)
    centres = apart * rng.normal(size=(groups, d))
    optima = [centres[i % groups] + rng.normal(size=d) for i in range(groups * each)]
    curvatures = [np.diag(rng.uniform(0.5, 2.0, d)) for _ in optima]
    return quadratics(curvatures, optima, **{"step_size": 0.05, "local_steps": 4, **training})


def clients_at(*optima: float, **training: object) -> Study:
    """f_i(w) = (1/2) (w - b_i)^2 in one dimension, from w0 = 0.1."""
    return quadratics([np.eye(1)] * len(optima), [np.array([b]) for b in optima], **{"local_steps": 1, **training})


def answers_of(*uploads: float, down: float = 0.0, weights: Sequence[float] | None = None) -> list[Answer]:
    """What clients 0, 1, ... of `clients_at` send to CGPFL."""
    shares = weights or [1.0] * len(uploads)
    sent = {"omega": torch.tensor([down], dtype=torch.float64)}
    return [
        Answer(i, {"w": torch.tensor([w], dtype=torch.float64)}, sent, 0, 5, weight)
        for i, (w, weight) in enumerate(zip(uploads, shares, strict=True))
    ]


def state(omega: Sequence[float], labels: Sequence[int]) -> Tensors:
    """CGPFL's server with these centres and clusters, in one dimension."""
    return {
        "omega": torch.tensor(omega, dtype=torch.float64).unsqueeze(1),
        "labels": torch.tensor(labels),
        "changed": torch.tensor(0.0),
    }


def round_of(problem: Study, number: int = 1) -> Round:
    """A round of everybody."""
    return Round(number, tuple(problem.federation.clients), problem.federation, 0.1)
