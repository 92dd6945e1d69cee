"""Gaussian clusters in known contexts: the ground truth for clustered and personalised methods."""

from pathlib import Path
from typing import Literal

import numpy as np

from pflsim.data.loading import Dataset
from pflsim.errors import DescriptionError
from pflsim.rng import stream

_BLOCK = 100_000  # numbers


def synthetic(
    directory: Path,
    *,
    samples: int = 4000,
    features: int = 20,
    classes: int = 4,
    contexts: int = 4,
    separation: float = 3.0,
    shift: Literal["labels", "means"] = "labels",
    seed: int = 0,
) -> Dataset:
    """Class c is a normal cloud of deviation 1 around a mean drawn from N(0, (separation^2 / features) I).

    Contexts differ by `shift`: with `labels` they share the clouds but context k calls cloud c class (c + k)
    modulo `classes`, so that no single model fits two of them; with `means` each context has clouds of its
    own. Rows come in equal numbers per context and class. `seed` is the data's own: the run's seed only
    divides them.
    """
    for key, value in (
        ("samples", samples),
        ("features", features),
        ("classes", classes),
        ("contexts", contexts),
    ):
        if value < 1:
            raise DescriptionError(f"data.{key}", value, "must be at least 1")
    if not 0 <= separation < 1e6:
        raise DescriptionError("data.separation", separation, "must be from 0 and below 1e6")
    if shift == "labels" and contexts > classes:
        reason = f'must be at most {classes}, the number of classes, for shift = "labels"'
        raise DescriptionError("data.contexts", contexts, reason)
    rng = stream(seed, "synthetic")
    clouds = contexts if shift == "means" else 1
    means = rng.normal(0.0, separation / np.sqrt(features), (clouds, classes, features))
    row = np.arange(samples)
    context, cloud = row % contexts, row // contexts % classes
    x = np.empty((samples, features), np.float32)
    for rows in np.array_split(row, min(samples, 1 + x.size // _BLOCK)):  # in blocks that fit a cache
        centres = means[context[rows] % clouds, cloud[rows]]
        x[rows[0] : rows[-1] + 1] = centres + rng.normal(size=centres.shape)
    y = (cloud + context) % classes if shift == "labels" else cloud
    return Dataset("synthetic", x, y.astype(np.int64), classes, context=context.astype(np.int64))
