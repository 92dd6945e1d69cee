"""The form that most CNNs of the papers share: two unpadded convolutions with pools, then linear layers."""

from itertools import pairwise

from torch import nn

from pflsim.learning.inputs import images, require_classes, side_after


def two_convolutions(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    *,
    kernel: int,
    channels: tuple[int, int],
    hidden: tuple[int, ...],
    smallest: int,
    pool_stride: int = 2,
    dropout: tuple[float, float] | None = None,
) -> nn.Module:
    """Twice a convolution of `kernel` x `kernel`, ReLU, a 2x2 pool and, where given, dropout; then `hidden` layers.

    `channels` are the widths of the convolutions, `hidden` those of the linear layers with ReLU before the last.
    Raises DescriptionError, naming the model `name`, for what is no image of at least `smallest` pixels a side.
    """
    require_classes(name, classes)
    adapter, incoming, height, width = images(name, shape, smallest=smallest)
    layers: list[nn.Module] = list(adapter)
    for position, (before, after) in enumerate(pairwise((incoming, *channels))):
        layers += [nn.Conv2d(before, after, kernel), nn.ReLU(), nn.MaxPool2d(2, pool_stride)]
        layers += [nn.Dropout(dropout[position])] if dropout else []
    features = channels[1] * side_after(height, kernel, pool_stride) * side_after(width, kernel, pool_stride)
    layers.append(nn.Flatten())
    for before, after in pairwise((features, *hidden)):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], classes))
