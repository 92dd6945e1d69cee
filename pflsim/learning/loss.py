"""The two losses a task has by itself; a method may give any other function of logits and labels."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits [b, C], labels [b]) -> the mean loss of the batch, a scalar that autograd can differentiate."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean of -log softmax(logits)[label]."""
    return functional.cross_entropy(logits, labels)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the mean squared error, so that least squares has the Hessian X^T X / n and no stray factor 2."""
    return 0.5 * (outputs - targets.reshape(outputs.shape)).square().sum() / outputs.shape[0]


def default_loss(labels: Tensor) -> Loss:
    """Cross-entropy for integer labels, squared error for real-valued targets (data with classes = 0)."""
    return squared_error if labels.dtype.is_floating_point else cross_entropy
