"""The CNN of CGPFL: id cnn_000. "Personalized Federated Learning with Contextualized Generalization"."""

from torch import nn

from pflsim.learning.inputs import images, require_classes, side_after


def cnn_cgpfl(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions (32, 64) with pooling and a layer of 512.

    878,538 parameters for 3x32x32 and 10 classes. The paper gives the layers but not the widths; these are
    the specification's.
    """
    require_classes("cnn-cgpfl", classes)
    adapter, channels, height, width = images("cnn-cgpfl", shape, smallest=16)
    features = 64 * side_after(height, 5) * side_after(width, 5)
    return nn.Sequential(
        *adapter,
        *(nn.Conv2d(channels, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(features, 512), nn.ReLU()),
        nn.Linear(512, classes),
    )
