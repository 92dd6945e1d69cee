"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, 10 classes; needs no download."""

from pathlib import Path

import numpy as np

from pflsim.data.loading import Dataset


def digits(directory: Path) -> Dataset:
    """All images [1, 8, 8] with pixels 0..16; there is no official test part, and `directory` is not used."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    return Dataset("digits", pixels, labels.astype(np.int64), 10, full_scale=16.0)
