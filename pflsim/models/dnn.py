"""Fully connected networks."""

import math
from itertools import pairwise

from torch import nn

from pflsim.errors import DescriptionError
from pflsim.learning.inputs import require_classes


def dnn(shape: tuple[int, ...], classes: int, *, hidden: tuple[int, ...] = (128,)) -> nn.Module:
    """Hidden layers of the given widths with ReLU; 101,770 parameters for 28x28, 128 and 10 classes."""
    require_classes("dnn", classes)
    if not hidden or min(hidden) < 1:
        raise DescriptionError("model.hidden", list(hidden), "wants at least one width, each at least 1")
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in pairwise((math.prod(shape), *hidden, classes)):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
