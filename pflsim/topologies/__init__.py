"""The graphs between clients: one file each, one function `(labels, sizes [N], rng, *, settings) -> weights [N, N]`.

A function whose graph changes has one more parameter, `(labels, sizes [N], rng, round, *, settings)`; its `rng` is
then another one in every round.
"""
