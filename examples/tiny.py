"""A model of one's own: a function that returns a torch module for samples of some shape and some number of classes.

pflsim run launch/runs/start-here.toml --set model.name=examples/tiny.py:tiny --set model.width=8
"""

import math

from torch import nn


def tiny(shape: tuple[int, ...], classes: int, *, width: int = 16) -> nn.Module:
    """One hidden layer with tanh. What stands after the * are settings; their types are checked."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width), nn.Tanh(), nn.Linear(width, classes))
