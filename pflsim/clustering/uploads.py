"""What clients sent last, kept in a server's state, for methods that cluster more than the answers of a round.

The state has `sent` [N, d], `when` [N] (the server's version in which it came, -1: never) and `version` [].
"""

from collections.abc import Mapping

import torch

Tensors = dict[str, torch.Tensor]

NEVER = -1


def remember(all: Tensors, came: Mapping[int, torch.Tensor], clients: int) -> Tensors:
    """`all` in its next version, in which these clients (of so many) sent these vectors [d] last."""
    some = next(iter(came.values()))
    sent = all["sent"].clone() if "sent" in all else some.new_zeros(clients, some.numel())
    when = all["when"].clone() if "when" in all else torch.full((clients,), NEVER)
    version = all.get("version", torch.tensor(0)) + 1
    for client, vector in came.items():
        sent[client], when[client] = vector, version
    return {**all, "sent": sent, "when": when, "version": version}


def last_uploads(all: Tensors, max_age: int | None = None) -> list[tuple[int, torch.Tensor]]:
    """What each client sent last, ascending, without those that are older than `max_age` versions."""
    if "when" not in all:
        return []
    oldest = 0 if max_age is None else int(all["version"]) - max_age
    return [(i, all["sent"][i]) for i, when in enumerate(all["when"].tolist()) if when != NEVER and when >= oldest]
