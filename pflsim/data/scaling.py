"""Raw rows become float32 features: in [0, 1], standardised pixel by pixel, or (x - .5) / .5."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Scaling = Literal["unit", "pixel", "half"]
_ROWS = 4096  # at a time, so that no second copy of the data is ever made


def scaled(
    x: npt.NDArray[Any], x_test: npt.NDArray[Any] | None, scaling: Scaling, full_scale: float | None
) -> npt.NDArray[np.float32]:
    """The rows of `x`, then those of `x_test`, as float32 [n, *shape].

    `unit` divides by `full_scale`, `half` then takes (x - .5) / .5; both leave features without a scale of
    their own (`full_scale` None) as they are. `pixel` takes (x - mean) / (deviation + .001) in raw units, the
    statistics being those of `x` alone: a test row has no say in them unless the pool holds it.
    """
    if scaling != "pixel" and full_scale is None and x_test is None and x.dtype == np.float32:
        return x  # nothing to do, and no second copy
    total = len(x) + (0 if x_test is None else len(x_test))
    result = np.empty((total, *x.shape[1:]), np.float32)
    shift, scale = _shift_and_scale(x, scaling, full_scale)
    start = 0
    for rows in (*_slices(x), *(() if x_test is None else _slices(x_test))):
        target = result[start : start + len(rows)]
        np.subtract(rows, shift, out=target, casting="same_kind")
        np.divide(target, scale, out=target)
        start += len(rows)
    return result


def _slices(x: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    return (x[start : start + _ROWS] for start in range(0, len(x), _ROWS))


def _shift_and_scale(
    x: npt.NDArray[Any], scaling: Scaling, full_scale: float | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    if scaling == "pixel":
        total, squares = np.zeros(x.shape[1:]), np.zeros(x.shape[1:])
        for rows in _slices(x):
            exact = rows.astype(np.float64)
            total += exact.sum(0)
            squares += (exact * exact).sum(0)
        mean = total / len(x)
        deviation = np.sqrt(np.maximum(squares / len(x) - mean * mean, 0.0))
        return mean.astype(np.float32), (deviation + 0.001).astype(np.float32)
    if full_scale is None:
        return np.zeros((), np.float32), np.ones((), np.float32)
    if scaling == "half":
        return np.array(full_scale / 2, np.float32), np.array(full_scale / 2, np.float32)
    return np.zeros((), np.float32), np.array(full_scale, np.float32)
