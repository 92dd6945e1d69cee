"""`pflsim compare`: methods beside each other, from what their runs left, with what may be said of a few seeds."""
