"""The models: one file each, one function `(shape, classes, *, settings) -> torch.nn.Module`."""
