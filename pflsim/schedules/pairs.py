"""Pairwise gossip: after its own work a peer asks one neighbour, drawn anew, and both move towards each other.

Lian, Zhang, Zhang, Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent (AD-PSGD). Whoever is asked
answers at once, also while it works or waits itself, so that nobody can wait in a circle; what an exchange and what the
work change is added to the model as it is by then, so that exchanges keep the mean of all models.
"""

from dataclasses import dataclass
from typing import ClassVar

from pflsim.schedule import WithoutServer


@dataclass(frozen=True)
class Pairs(WithoutServer):
    """One exchange with one neighbour after each piece of work."""

    mixes_evenly: ClassVar[bool] = True
