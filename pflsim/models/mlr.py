"""Multinomial logistic regression."""

import math

from torch import nn

from pflsim.learning.inputs import require_classes


def mlr(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear layer under a softmax; 7,850 parameters for 28x28 and 10 classes.

    The L2-regularised MLR of the papers is this model with `training.weight_decay` > 0.
    """
    require_classes("mlr", classes)
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
