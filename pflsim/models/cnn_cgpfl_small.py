"""A small CNN of the same form as CGPFL's."""

from torch import nn

from pflsim.learning.convolutions import two_convolutions


def cnn_cgpfl_small(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions (6, 16) with pooling and a layer of 120; 52,202 parameters for 3x32x32 and 10 classes."""
    return two_convolutions("cnn-cgpfl-small", shape, classes, kernel=5, channels=(6, 16), hidden=(120,), smallest=16)
