"""Clustering of what clients upload: k-means, labels that persist, merging, and the last uploads that are known."""
