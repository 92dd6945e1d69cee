"""What a model can take: checks and adapters that the files of `pflsim.models` share."""

from torch import nn

from pflsim.errors import DescriptionError


def images(name: str, shape: tuple[int, ...], smallest: int) -> tuple[list[nn.Module], int, int, int]:
    """The layers that put samples into [n, C, H, W], and C, H and W.

    Grey images come as [H, W] and colour images as [C, H, W]; raises DescriptionError for anything else and
    for images with a side below `smallest`.
    """
    if len(shape) == 3 and shape[0] > 4 and shape[2] <= 4:
        raise DescriptionError("model.name", name, f"wants the channels first, not samples of shape {list(shape)}")
    if len(shape) not in (2, 3):
        raise DescriptionError("model.name", name, f"wants images, not samples of shape {list(shape)}")
    channels, height, width = (1, *shape) if len(shape) == 2 else shape
    if min(height, width) < smallest:
        wanted = f"wants images of at least {smallest}x{smallest}, not {height}x{width}"
        raise DescriptionError("model.name", name, wanted)
    adapter: list[nn.Module] = [nn.Unflatten(1, (1, height))] if len(shape) == 2 else []
    return adapter, channels, height, width


def side_after(side: int, kernel: int, pool_stride: int = 2) -> int:
    """A side of an image after two rounds of an unpadded convolution and a 2x2 pool of that stride."""
    for _ in range(2):
        side = (side - kernel + 1 - 2) // pool_stride + 1
    return side


def require_classes(name: str, classes: int) -> None:
    """Refuse data without classes for a model that classifies."""
    if classes < 2:
        raise DescriptionError("model.name", name, f"wants labels of at least 2 classes, not {classes}")
