"""Data: reading a data set, scaling it, and dividing it among the clients."""
