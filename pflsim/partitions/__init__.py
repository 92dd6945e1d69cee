"""The partitions: one file each, one function `(labels, clients, rng, *, settings) -> index arrays`."""
