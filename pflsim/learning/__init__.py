"""Learning: a network as one flat vector, and a client's task on its own data."""
