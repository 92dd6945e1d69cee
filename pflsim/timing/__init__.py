"""Simulated time: the two clocks, devices that compute, and links that carry."""
