"""The CNNs of the FedAvg paper (McMahan and others, 2017), for MNIST and for CIFAR-10.

The CIFAR form is the TensorFlow tutorial's network, without its local response normalisation.
"""

from typing import Literal

from torch import nn

from pflsim.learning.inputs import images, require_classes


def cnn_mcmahan(shape: tuple[int, ...], classes: int, *, form: Literal["auto", "mnist", "cifar"] = "auto") -> nn.Module:
    """Two padded 5x5 convolutions with pooling, in the form for MNIST or in that for CIFAR-10.

    "auto" takes "mnist" for grey and "cifar" for colour images. With 10 classes mnist has 1,663,370
    parameters for 28x28; cifar has 1,756,426 for 3x32x32 and 1,068,298 for 3x24x24.
    """
    require_classes("cnn-mcmahan", classes)
    adapter, channels, height, width = images("cnn-mcmahan", shape, smallest=8)
    features = 64 * (height // 4) * (width // 4)
    if form == "auto":
        form = "mnist" if channels == 1 else "cifar"
    if form == "mnist":
        return nn.Sequential(
            *adapter,
            *(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(features, 512), nn.ReLU()),
            nn.Linear(512, classes),
        )
    return nn.Sequential(
        *adapter,
        *(nn.Conv2d(channels, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(nn.Flatten(), nn.Linear(features, 384), nn.ReLU()),
        *(nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, classes)),
    )
