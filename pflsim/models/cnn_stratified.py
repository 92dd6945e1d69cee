"""The CNN of stratified-sampling PFL: id cnn_001.

"A personalized federated learning method based on stratified sampling in edge network" gives the 2x2 kernels
but not the widths; these are the specification's.
"""

from torch import nn

from pflsim.learning.inputs import images, require_classes, side_after


def cnn_stratified(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 2x2 convolutions (16, 32) with pooling and a layer of 128.

    157,742 parameters for 28x28 and 62 classes.
    """
    require_classes("cnn-stratified", classes)
    adapter, channels, height, width = images("cnn-stratified", shape, smallest=7)
    features = 32 * side_after(height, 2) * side_after(width, 2)
    return nn.Sequential(
        *adapter,
        *(nn.Conv2d(channels, 16, 2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(features, 128), nn.ReLU()),
        nn.Linear(128, classes),
    )
