"""A small CNN of the same form as CGPFL's: id cnn_000_small."""

from torch import nn

from pflsim.learning.inputs import images, require_classes, side_after


def cnn_cgpfl_small(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions (6, 16) with pooling and a layer of 120.

    52,202 parameters for 3x32x32 and 10 classes.
    """
    require_classes("cnn-cgpfl-small", classes)
    adapter, channels, height, width = images("cnn-cgpfl-small", shape, smallest=16)
    features = 16 * side_after(height, 5) * side_after(width, 5)
    return nn.Sequential(
        *adapter,
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(features, 120), nn.ReLU()),
        nn.Linear(120, classes),
    )
