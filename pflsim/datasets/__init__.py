"""The data sets: one file each, one function `(directory, *, settings) -> Dataset`."""
