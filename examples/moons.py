"""A data set of one's own: a function that returns arrays.

pflsim run launch/runs/start-here.toml --set data.name=examples/moons.py:moons --set data.partition.classes=1
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import make_moons

from pflsim.data.loading import Dataset


def moons(directory: Path, *, samples: int = 2000, noise: float = 0.2) -> Dataset:
    """Two half circles that reach into each other; `directory`, that of `data.dir`, is not needed."""
    x, y = make_moons(samples, noise=noise, random_state=0)
    return Dataset("moons", x.astype(np.float32), y, classes=2)
