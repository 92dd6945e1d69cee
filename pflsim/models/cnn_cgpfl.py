"""The CNN of "Personalized Federated Learning with Contextualized Generalization" (CGPFL)."""

from torch import nn

from pflsim.learning.convolutions import two_convolutions


def cnn_cgpfl(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions (32, 64) with pooling and a layer of 512.

    878,538 parameters for 3x32x32 and 10 classes. The paper gives the layers but not the widths; these are chosen
    here.
    """
    return two_convolutions("cnn-cgpfl", shape, classes, kernel=5, channels=(32, 64), hidden=(512,), smallest=16)
