"""Federations with planted clusters, for the tests of clustered methods."""

import numpy as np

from tests.problems import Study, quadratics


def planted(groups: int = 2, each: int = 3, apart: float = 100.0, d: int = 3, **training: object) -> Study:
    """Clients i = 0, 1, ... of which i mod `groups` is the group; the optima of different groups lie far apart."""
    rng = np.random.default_rng(5)
    centres = apart * rng.normal(size=(groups, d))
    optima = [centres[i % groups] + rng.normal(size=d) for i in range(groups * each)]
    curvatures = [np.diag(rng.uniform(0.5, 2.0, d)) for _ in optima]
    return quadratics(curvatures, optima, **{"step_size": 0.05, "local_steps": 4, **training})
