"""Who gets which of the drawn speeds, when speed goes with the amount or the kind of a client's data."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from pflsim.timing.families import Spread


def correlated(spread: Spread, trait: Sequence[float], strength: float, rng: np.random.Generator) -> Spread:
    """The same values, dealt so that their ranks go with the ranks of `trait`.

    At strength 1 the client with the greatest trait has the greatest value, at -1 the least, and at 0 the values are
    dealt at random. Between them (a Gaussian copula) the score of a client is strength x the normal quantile of its
    trait's rank + sqrt(1 - strength^2) x a normal draw, and scores and values are paired in order, so that Spearman's
    rank correlation is about 6/pi arcsin(strength/2), which differs from the strength by less than 0.02. Equal traits
    are told apart at random.
    """
    clients = len(trait)
    noise = rng.standard_normal(clients).tolist()
    quantiles = [NormalDist().inv_cdf((rank + 0.5) / clients) for rank in _ranks(trait)]
    rest = math.sqrt(1 - strength**2)
    scores = [strength * quantile + rest * draw for quantile, draw in zip(quantiles, noise, strict=True)]
    by_score = sorted(range(clients), key=lambda client: (scores[client], noise[client]))
    by_value = sorted(range(clients), key=lambda client: (spread.values[client], client))
    source = dict(zip(by_score, by_value, strict=True))
    return Spread(
        [spread.values[source[client]] for client in range(clients)],
        [spread.classes[source[client]] for client in range(clients)],
    )


def label_trait(labels: Sequence[int], rng: np.random.Generator) -> list[float]:
    """A trait by which clients with the same main label stand together, the labels in an order that is drawn."""
    kinds = sorted(set(labels))
    place = dict(zip(kinds, rng.permutation(len(kinds)).tolist(), strict=True))
    return [float(place[label]) for label in labels]


def _ranks(trait: Sequence[float]) -> list[float]:
    """The rank of each from 0; equal ones have the mean of their ranks."""
    ordered = sorted(trait)
    first = {value: rank for rank, value in reversed(list(enumerate(ordered)))}
    last = {value: rank for rank, value in enumerate(ordered)}
    return [(first[value] + last[value]) / 2 for value in trait]
