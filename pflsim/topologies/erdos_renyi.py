"""Each pair is linked by the toss of a coin."""

from collections.abc import Sequence

import numpy as np

from pflsim.errors import DescriptionError


def erdos_renyi(
    labels: Sequence[tuple[int, ...]],
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    probability: float = 0.2,
) -> np.ndarray:
    """Weight 1 for each pair with `probability`, independently, as [N, N].

    Connected with high probability when `probability` is well above ln N / N.
    """
    if not 0.0 <= probability <= 1.0:
        raise DescriptionError("topology.probability", probability, "must be from 0 to 1")
    tossed = np.triu(rng.random((len(labels), len(labels))) < probability, 1)
    return np.asarray(tossed | tossed.T, dtype=np.float64)
