"""The partitions: one file each, one function `(pool, clients, rng, *, settings) -> indices per client`."""
