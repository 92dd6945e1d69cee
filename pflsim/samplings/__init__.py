"""Who takes part: one file per sampling. `pflsim.sampling` tells what a file here has to offer."""
