"""The other reading of the stratified-sampling CNN: id cnn_001_ref, whose pools move one pixel at a time."""

from torch import nn

from pflsim.learning.inputs import images, require_classes, side_after


def cnn_stratified_ref(shape: tuple[int, ...], classes: int, *, dropout: bool = False) -> nn.Module:
    """As cnn-stratified with pools of stride 1, as in pFedMe's code.

    2,369,582 parameters for 28x28 and 62 classes. `dropout` adds that code's two layers, of 0.25 after the
    first pool and 0.5 after the second.
    """
    require_classes("cnn-stratified-ref", classes)
    adapter, channels, height, width = images("cnn-stratified-ref", shape, smallest=5)
    features = 32 * side_after(height, 2, pool_stride=1) * side_after(width, 2, pool_stride=1)
    first, second = ([nn.Dropout(0.25)], [nn.Dropout(0.5)]) if dropout else ([], [])
    return nn.Sequential(
        *adapter,
        *(nn.Conv2d(channels, 16, 2), nn.ReLU(), nn.MaxPool2d(2, 1), *first),
        *(nn.Conv2d(16, 32, 2), nn.ReLU(), nn.MaxPool2d(2, 1), *second),
        *(nn.Flatten(), nn.Linear(features, 128), nn.ReLU()),
        nn.Linear(128, classes),
    )
