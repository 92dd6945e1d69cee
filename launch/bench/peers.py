"""What it costs to have no server: `python -m launch.bench.peers`.

40 dFedU peers on a ring, a 4-regular and a full graph, with W1's model and data, beside 40 clients of FedU with a
server and beside the floor of two processes that share memory and send nothing. Wanted: at least 0.7 of FedU's rounds
a second on the 4-regular graph. The payload of an edge must be two models a round, exactly.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from launch.bench.measure import measure_floor
from launch.bench.workloads import SHARED, Workload, workloads
from launch.comparison import run_all
from pflsim.errors import RunFailed

REGULAR = {"name": "regular", "degree": 4}
GRAPHS: dict[str, dict[str, Any]] = {"ring": {"name": "ring"}, "4-regular": REGULAR, "full": {"name": "full"}}
LEAST_SHARE = 0.7


def main(turns: int = 3) -> None:
    """Print the medians of so many turns."""
    plain = workloads()["W1"]
    forms = {"fedu": _form(plain, "fedu", REGULAR)}
    forms |= {graph: _form(plain, "dfedu", table) for graph, table in GRAPHS.items()}
    rates: dict[str, list[float]] = {form: [] for form in (SHARED, *forms)}
    for _ in range(turns):
        rates[SHARED].append(measure_floor(SHARED, plain, quick=False))
        for form, workload in forms.items():
            rates[form].append(rounds_per_s(workload))
    fedu, floor = median(rates["fedu"]), median(rates[SHARED])
    print(f"{'':<28}{'rounds/s':>9}{'x FedU':>8}{'x floor':>9}")
    for form, found in rates.items():
        rate = median(found)
        wanted = (
            f"  (≥ {LEAST_SHARE}) {'met' if rate >= LEAST_SHARE * fedu else 'MISSED'}" if form == "4-regular" else ""
        )
        print(f"{_NAMES.get(form, f'dFedU, {form}'):<28}{rate:>9.1f}{rate / fedu:>8.2f}{rate / floor:>9.2f}{wanted}")


_NAMES = {SHARED: "floor: two processes", "fedu": "FedU, 40 clients, 4-regular"}


def rounds_per_s(workload: Workload) -> float:
    """From when everybody has joined to when the last has finished."""
    with tempfile.TemporaryDirectory(prefix="pflsim-bench-") as folder:
        (result,) = run_all(
            workload.tables | {"record": {"plot": False, "report": False}}, Path(folder) / "out", quiet=True
        )
        told = next(row["detail"] for row in result.rows("events") if row["what"] == "finished")
        if workload.tables["algorithm"]["name"] == "dfedu":
            _require_exact_bytes(result, workload.tables["run"]["rounds"])
    finished = json.loads(told)
    return float(finished["rounds"] / finished["wall_s"])


def _require_exact_bytes(result: Any, rounds: int) -> None:
    model_bytes = 4 * result.summary["parameters"]
    pushes = [row for row in result.rows("messages") if row["kind"] == "PUSH"]
    sent: dict[tuple[str, str], int] = {}
    for row in pushes:
        sent[row["sender"], row["receiver"]] = sent.get((row["sender"], row["receiver"]), 0) + row["sent_payload_bytes"]
    wrong = {pair: found for pair, found in sent.items() if found != rounds * model_bytes}
    if wrong or not sent:
        raise RunFailed("bench", f"an edge carried other bytes than a model each way in each round: {wrong}")


def _form(plain: Workload, algorithm: str, topology: dict[str, Any]) -> Workload:
    tables = {"algorithm": {"name": algorithm, "eta_r": 0.001}, "topology": topology}
    return replace(plain, tables=plain.tables | tables)


if __name__ == "__main__":
    main()
