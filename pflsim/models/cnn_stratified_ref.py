"""The other reading of the CNN of `cnn_stratified`, whose pools move one pixel at a time."""

from torch import nn

from pflsim.learning.convolutions import two_convolutions


def cnn_stratified_ref(shape: tuple[int, ...], classes: int, *, dropout: bool = False) -> nn.Module:
    """As cnn-stratified with pools of stride 1, as in pFedMe's code.

    2,369,582 parameters for 28x28 and 62 classes. `dropout` adds that code's two layers, of 0.25 after the
    first pool and 0.5 after the second.
    """
    return two_convolutions(
        "cnn-stratified-ref",
        shape,
        classes,
        kernel=2,
        channels=(16, 32),
        hidden=(128,),
        smallest=5,
        pool_stride=1,
        dropout=(0.25, 0.5) if dropout else None,
    )
