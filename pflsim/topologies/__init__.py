"""The graphs between clients: one file each, one function `(clients, rng, *, settings) -> weights [N, N]`."""
