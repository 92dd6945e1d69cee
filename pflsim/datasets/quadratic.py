"""Quadratics for exact tests: each natural client is a least-squares problem whose Hessian and minimum are
known.

Client i has the rows A_i [m, d] and targets y_i = A_i b_i, so that with the mean squared error, halved,

    f_i(w) = 1/2 mean_j (A_i w - y_i)_j^2 = 1/2 (w - b_i)^T H_i (w - b_i),     H_i = A_i^T A_i / m.

From the arrays: H_i = x.T @ x / len(x) and b_i = np.linalg.lstsq(x, y)[0] with x, y the rows of client i. The
minimum of sum_i n_i f_i is (sum_i n_i H_i)^-1 sum_i n_i H_i b_i.
"""

from pathlib import Path

import numpy as np

from pflsim.data.loading import Dataset
from pflsim.errors import DescriptionError
from pflsim.rng import stream


def quadratic(
    directory: Path,
    *,
    clients: int = 4,
    features: int = 4,
    copies: int = 1,
    condition: float = 10.0,
    spread: float = 1.0,
    rotated: bool = False,
    seed: int = 0,
) -> Dataset:
    """Regression data (classes == 0) of `clients` natural clients with m = features * copies rows each.

    H_i has eigenvalues from 1/condition to 1, evenly spaced, in a random order (diagonal H_i) or in random
    directions (`rotated`); b_i is drawn from N(0, spread^2 I). For a client without a test part set
    `data.test_share = 0`.
    """
    for key, value in (("clients", clients), ("features", features), ("copies", copies)):
        if value < 1:
            raise DescriptionError(f"data.{key}", value, "must be at least 1")
    if not 1 <= condition < 1e12:
        raise DescriptionError("data.condition", condition, "must be at least 1 and below 1e12")
    if not 0 <= spread < 1e6:
        raise DescriptionError("data.spread", spread, "must be from 0 and below 1e6")
    rng = stream(seed, "quadratic")
    rows, targets = [], []
    for _ in range(clients):
        eigenvalues = rng.permutation(np.linspace(1 / condition, 1.0, features))
        directions = np.linalg.qr(rng.normal(size=(features, features)))[0] if rotated else np.eye(features)
        a = (np.sqrt(features * eigenvalues)[:, None] * directions).astype(np.float32)
        b = rng.normal(0.0, spread, features)
        rows.append(np.tile(a, (copies, 1)))
        targets.append(np.tile((a @ b).astype(np.float32), copies))
    client = np.repeat(np.arange(clients), features * copies)
    return Dataset("quadratic", np.concatenate(rows), np.concatenate(targets), 0, client=client)
