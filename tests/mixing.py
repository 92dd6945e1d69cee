"""What the tests of the mixing methods share: cohorts, two clients in one dimension, and comparisons."""

from typing import Any

import numpy as np
import torch

from pflsim.conformance.rounds import Ran
from pflsim.federation import Federation
from pflsim.rng import stream
from tests.problems import Study, quadratics

ROUNDS = 10


def some(federation: Federation, number: int) -> list[int]:
    """Half of the clients, drawn anew in each round."""
    clients = len(federation.clients)
    drawn: list[int] = stream(9, "cohort", number).permutation(clients)[: clients // 2].tolist()
    return drawn


def two_clients(**training: Any) -> Study:
    """f_i(w) = (1/2) h_i (w - b_i)^2 with h = (2, 4) and b = (1, -1), full gradients, from w0 = 0.1."""
    curvatures = [np.array([[2.0]]), np.array([[4.0]])]
    return quadratics(curvatures, [np.array([1.0]), np.array([-1.0])], **training)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    """Bit for bit."""
    assert torch.equal(a, b)


def near(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def close(tensor: torch.Tensor, *numbers: Any, atol: float = 1e-12) -> None:
    """Equal to numbers worked out by hand."""
    np.testing.assert_allclose(tensor.double().numpy().ravel(), np.array(numbers, float), rtol=0, atol=atol)


def personal(ran: Ran, name: str) -> torch.Tensor:
    """A private vector of every client, [N, d]."""
    return torch.stack([you[name] for you in ran.you])
