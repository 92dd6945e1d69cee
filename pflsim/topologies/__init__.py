"""The graphs between clients: one file each, one function `(labels, sizes [N], rng, *, settings) -> weights [N, N]`."""
