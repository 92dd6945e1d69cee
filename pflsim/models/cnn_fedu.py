"""The CNN of FedU's published code.

"A New Look and Convergence Rate of Federated Multi-Task Learning with Laplacian Regularization" names
McMahan's CNN for CIFAR-10; its code uses this smaller one.
"""

from torch import nn

from pflsim.learning.convolutions import two_convolutions


def cnn_fedu(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions (6, 16), layers of 120 and 100; 64,102 parameters for 3x32x32 and 10 classes."""
    return two_convolutions("cnn-fedu", shape, classes, kernel=5, channels=(6, 16), hidden=(120, 100), smallest=16)
