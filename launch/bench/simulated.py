"""What simulated time itself costs, and how well the wall clock keeps to it: `python -m launch.bench.simulated`.

modelled   W1 on devices and links that make it last ten simulated hours, against W1 without any: at most 1.15 times
           the real time
without    W1 under FedAsync with 20 clients at work, against the synchronous rounds: at least 0.7 of the updates
rounds     a second
wall       rounds of some 0.6 s in real time, against the same rounds in simulated time: within 5 %

Each line has the figure, what is wanted of it, and whether that is met.
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
    deviation = wall_deviation(plain)
    for line in told(median(times), median(shares), deviation):
        print(line)


def told(times: float, share: float, deviation: float) -> list[str]:
    """The three figures beside what is wanted of them."""
    lines = (
        ("ten simulated hours, in real time", f"{times:.2f} x", f"≤ {MOST_TIMES:.2f} x", times <= MOST_TIMES),
        ("FedAsync's updates a second", f"{share:.2f} x", f"≥ {LEAST_SHARE:.2f} x", share >= LEAST_SHARE),
        (
            "rounds in real time, against simulated ones",
            f"{100 * deviation:.1f} % off",
            f"≤ {100 * MOST_DEVIATION:.0f} %",
            deviation <= MOST_DEVIATION,
        ),
    )
    return [f"{what:<44} {figure:>10}  ({wanted})  {'met' if met else 'MISSED'}" for what, figure, wanted, met in lines]


def wall_deviation(workload: Workload) -> float:
    """The largest deviation of a round's real duration from its simulated one, as a share of that."""
    tables: dict[str, Any] = workload.tables | {"links": "wifi", "record": {"plot": False, "report": False}}
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


if __name__ == "__main__":
    main()
