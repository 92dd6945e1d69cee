"""`pflsim sweep`: many runs side by side, each an ordinary one, kept to be found again, and made into one table."""
