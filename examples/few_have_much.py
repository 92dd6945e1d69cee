"""A partition of one's own: a function that says which samples each client has.

pflsim run launch/runs/start-here.toml --set 'data.partition={name="examples/few_have_much.py:few_have_much"}'
"""

import numpy as np

from pflsim.data.partition import Indices, Pool


def few_have_much(pool: Pool, clients: int, rng: np.random.Generator, *, exponent: float = 1.0) -> list[Indices]:
    """The k-th client has a share of the samples in proportion to k^-exponent, of all classes alike.

    `pool.labels` [n] says what there is; `rng` is the only source of randomness. A client gets 2 samples at least.
    """
    pool.require(0 <= exponent <= 3, "exponent", exponent, "must be from 0 to 3")
    shares = np.arange(1, clients + 1) ** -exponent
    spare = len(pool) - 2 * clients
    pool.require(spare >= 0, "exponent", exponent, f"{len(pool)} samples are too few for {clients} clients")
    ends = np.cumsum(2 + np.floor(spare * shares / shares.sum()).astype(int))
    return [np.sort(part) for part in np.split(rng.permutation(len(pool))[: ends[-1]], ends[:-1])]
