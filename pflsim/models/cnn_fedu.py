"""The CNN of FedU's published code: id cnn_003_code.

"A New Look and Convergence Rate of Federated Multi-Task Learning with Laplacian Regularization" names
McMahan's CNN for CIFAR-10; its code uses this smaller one.
"""

from torch import nn

from pflsim.learning.inputs import images, require_classes, side_after


def cnn_fedu(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions (6, 16), layers of 120 and 100.

    64,102 parameters for 3x32x32 and 10 classes.
    """
    require_classes("cnn-fedu", classes)
    adapter, channels, height, width = images("cnn-fedu", shape, smallest=16)
    features = 16 * side_after(height, 5) * side_after(width, 5)
    return nn.Sequential(
        *adapter,
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(features, 120), nn.ReLU()),
        *(nn.Linear(120, 100), nn.ReLU(), nn.Linear(100, classes)),
    )
