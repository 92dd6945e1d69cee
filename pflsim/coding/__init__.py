"""How tensors travel in fewer bytes: what the files in `pflsim/codecs` share, and what becomes of them on the way."""
