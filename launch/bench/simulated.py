"""What simulated time itself costs, and how well the wall clock keeps to it: `python -m launch.bench.simulated`.

modelled   W1 on devices and links that make it last ten simulated hours, against W1 without any: at most 1.15 times
           the real time
without    W1 under FedAsync with 20 clients at work, against the synchronous rounds: at least 0.7 of the updates
rounds     a second
wall       rounds of some 0.6 s in real time, against the same rounds in simulated time: within 5 %
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from launch.bench.measure import measure_run
from launch.bench.workloads import EACH, Workload, workloads
from launch.comparison import run_all
from pflsim.spec import override_value
from pflsim.timing.clock import NANOSECONDS

TEN_HOURS = {
    "links": "4g",
    "devices": {"kind": "constant", "flops_per_second": 26e3, "server_flops_per_second": "workstation"},
}
WITHOUT_ROUNDS = {"schedule": {"kind": "fedasync", "concurrency": 20}}
MOST_TIMES, LEAST_SHARE, MOST_DEVIATION = 1.15, 0.7, 0.05


def main(turns: int = 3) -> None:
    """Print the three figures, the first two as medians of so many turns."""
    plain = workloads()["W1"]
    modelled, without = (replace(plain, tables=plain.tables | more) for more in (TEN_HOURS, WITHOUT_ROUNDS))
    times, shares = [], []
    for _ in range(turns):
        base = measure_run(plain, EACH).rounds_per_s
        times.append(base / measure_run(modelled, EACH).rounds_per_s)
        shares.append(measure_run(without, EACH).rounds_per_s / base)
    _tell("ten simulated hours take", f"{median(times):.2f} times the real time", median(times) <= MOST_TIMES)
    _tell("FedAsync does", f"{median(shares):.2f} of the updates a second", median(shares) >= LEAST_SHARE)
    deviation = wall_deviation(plain)
    _tell("rounds in real time deviate by", f"{100 * deviation:.1f} % at most", deviation <= MOST_DEVIATION)


def wall_deviation(workload: Workload) -> float:
    """The largest deviation of a round's real duration from its simulated one, as a share of that."""
    tables: dict[str, Any] = workload.tables | {"links": "wifi", "record": {"plot": False}}
    tables = override_value(tables, "run.clients", 5)
    tables = override_value(tables, "run.rounds", 5)
    tables = override_value(tables, "run.name", "wall")
    tables = override_value(tables, "data.samples", 5 * 800)
    tables["devices"] = {"kind": "constant", "flops_per_second": 30e6, "server_flops_per_second": "workstation"}
    lasted: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory(prefix="pflsim-bench-") as folder:
        for mode in ("virtual", "wall"):
            (result,) = run_all(tables | {"time": {"mode": mode}}, Path(folder) / mode, quiet=True)
            lasted[mode] = [row["end_ns"] - row["start_ns"] for row in result.rows("rounds")]
    pairs = zip(lasted["wall"], lasted["virtual"], strict=True)
    assert min(lasted["virtual"]) > NANOSECONDS // 4
    return max(abs(real - simulated) / simulated for real, simulated in pairs)


def _tell(what: str, figure: str, met: bool) -> None:
    print(f"{what} {figure}{'' if met else ' (missed)'}")


if __name__ == "__main__":
    main()
