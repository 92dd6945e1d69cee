"""`python -m launch.bench [WORKLOAD ...]`: measure workloads and their floors in turn, and compare the medians.

The plain floor is a first script (one process, nn.Module, optim.SGD); the shared floor is two processes over shared
memory with hand-derived gradients and no messages. Rates are those inside a run, from the end of its first round to
that of its last. `first round` is the whole command up to there, imports and start of all processes included.
"""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from launch.bench.measure import measure_floor, measure_run
from launch.bench.table import Figures, machine, show
from launch.bench.workloads import PLAIN, SHARED, Workload, workloads
from launch.cli import guarded
from pflsim.errors import DescriptionError


def measure(workload: Workload, repeat: int, quick: bool, console: Console) -> Figures:
    """Let the floors and the forms of one workload take turns `repeat` times, then sample each form's memory."""
    figures = Figures(workload)
    for turn in range(repeat):
        for floor in (PLAIN, SHARED):
            rate = measure_floor(floor, workload, quick)
            figures.floors[floor].append(rate)
            console.print(f"{workload.name} turn {turn + 1}: floor {floor} {rate:.1f} rounds/s", style="dim")
        for form in workload.forms:
            run = measure_run(workload, form)
            figures.runs[form].append(run)
            console.print(f"{workload.name} turn {turn + 1}: {form} {run.rounds_per_s:.1f} rounds/s", style="dim")
    for form in workload.forms:
        figures.peak_pss_bytes[form] = measure_run(workload, form, memory=True).peak_pss_bytes or 0
    return figures


@click.command()
@click.argument("names", nargs=-1, metavar="[W1] [W2] [W3] [W4]")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all figures to this file.")
@click.option("--quick", is_flag=True, help="Sizes too small to mean anything, to try the bench itself.")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(min=1), help="How many turns.")
def bench(names: tuple[str, ...], json_path: Path | None, quick: bool, repeat: int) -> None:
    """Measure speed and memory beside their floors."""
    known = workloads(quick)
    for name in names:
        if name not in known:
            raise DescriptionError("bench", name, f"known are {', '.join(known)}")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    figures = [measure(known[name], repeat, quick, console) for name in names or known]
    show(figures, console)
    if json_path is not None:
        values = {"machine": machine(), "workloads": {one.workload.name: one.as_values() for one in figures}}
        json_path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(guarded(lambda: bench.main(standalone_mode=False)))
