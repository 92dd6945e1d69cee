"""The methods: one file per paper; the file name is the name in a run description."""
