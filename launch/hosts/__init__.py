"""Machines that the launcher starts hosts on: named in a file and reached by ssh, or the workers of a Dask cluster."""
