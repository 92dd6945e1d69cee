"""A real Dask cluster for the tests: `python -m tests.dask_cluster N` runs N workers, each a process, and prints where.

It ends with its standard input. A worker that is killed comes back, as a nanny sees to it, under another address.
"""

import sys

from distributed import LocalCluster


def main() -> None:
    count = int(sys.argv[1])
    with LocalCluster(
        n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        print(cluster.scheduler_address.replace("tcp://", "dask://"), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
