"""Sort by label, cut into N x s equal shards, deal s to each client (the non-IID split of FedAvg)."""

import numpy as np

from pflsim.data.partition import Draw, Pool


def label_shards(pool: Pool, clients: int, rng: np.random.Generator, *, per_client: int = 2) -> Draw:
    """`per_client` random shards each; where classes are of unequal size a shard may span two labels.

    The paper of FedCedar does not give its split: results on it count as an assumed split, and the notes say
    so.
    """
    pieces = clients * per_client
    fits = f"{pieces} shards need at least as many samples, and the pool has {len(pool)}"
    pool.require(per_client >= 1 and pieces <= len(pool), "per_client", per_client, fits)
    by_label = np.concatenate(pool.by_class(rng))
    shards = np.array_split(by_label, pieces)
    dealt = rng.permutation(pieces).reshape(clients, per_client)
    held = [np.concatenate([shards[piece] for piece in own]) for own in dealt.tolist()]
    return Draw(held, {"split": "assumed: not given in the paper"})
