"""The CNN of "A personalized federated learning method based on stratified sampling in edge network".

The paper gives the 2x2 kernels but not the widths; these are chosen here.
"""

from torch import nn

from pflsim.learning.convolutions import two_convolutions


def cnn_stratified(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 2x2 convolutions (16, 32) with pooling and a layer of 128; 157,742 parameters for 28x28 and 62 classes."""
    return two_convolutions("cnn-stratified", shape, classes, kernel=2, channels=(16, 32), hidden=(128,), smallest=7)
