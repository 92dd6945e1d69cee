"""What to start and where: the command line, local runs, and the run descriptions in `runs/`."""
