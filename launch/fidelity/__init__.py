"""Is what is simulated true? Runs over real networks of this machine's own, beside what the virtual clock says."""
