"""`make bench`: how fast runs are and how much memory they take, beside floors that are measured in the same call."""
