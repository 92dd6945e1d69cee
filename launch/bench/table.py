"""The figures of a bench as a table for people and as plain values for JSON."""

import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from launch.bench.measure import Measured
from launch.bench.workloads import PLAIN, SHARED, Target, Workload


class Figures:
    """One workload's floors and runs, which took turns: entry k of each was measured right after one another."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.floors: dict[str, list[float]] = {PLAIN: [], SHARED: []}
        self.runs: dict[str, list[Measured]] = {form: [] for form in workload.forms}
        self.peak_pss_bytes: dict[str, int] = {}

    def median_of(self, form: str, figure: Callable[[Measured], float]) -> float:
        """The median of a figure over the runs of a form."""
        return median(map(figure, self.runs[form]))

    def ratio(self, form: str, floor: str) -> float:
        """The median of the ratios to a floor, turn by turn: what slows a whole turn down cancels out."""
        pairs = zip(self.runs[form], self.floors[floor], strict=True)
        return median(run.rounds_per_s / rate for run, rate in pairs)

    def quantity(self, form: str, name: str) -> float:
        """What a target's `quantity` stands for."""
        if name in (PLAIN, SHARED):
            return self.ratio(form, name)
        if name == "first_round_s":
            return self.median_of(form, lambda run: run.first_round_s)
        return float(self.peak_pss_bytes[form])

    def as_values(self) -> dict[str, Any]:
        """Everything measured, and how it compares to the targets."""
        return {
            "what": self.workload.what,
            "description": self.workload.tables,
            "floors_rounds_per_s": self.floors,
            "runs": {form: [vars(run) for run in runs] for form, runs in self.runs.items()},
            "peak_pss_bytes": self.peak_pss_bytes,
            "targets": [self._compared(target) for target in self.workload.targets],
        }

    def _compared(self, target: Target) -> dict[str, Any]:
        value = self.quantity(target.form, target.quantity)
        return vars(target) | {"value": value, "met": target.met(value)}


def machine() -> dict[str, Any]:
    """What the figures were measured on, and how busy it was with other things."""
    names = [line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "system": platform.platform(),
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "torch": version("torch"),
        "python": platform.python_version(),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def show(figures: Sequence[Figures], console: Console) -> None:
    """Print one row per workload and form."""
    here = machine()
    console.print(
        f"{here['cores']} cores, {here['processor']}, torch {here['torch']}, load {here['load']:.1f} at the end"
    )
    table = Table("workload", "processes", box=None, padding=(0, 2, 0, 0))
    for heading in ("rounds/s", "x plain", "x shared", "first round s", "memory GB", "processor s"):
        table.add_column(heading, justify="right")
    for one in figures:
        for form in one.workload.forms:
            table.add_row(*_row(one, form))
        for floor, rates in one.floors.items():
            table.add_row("", f"[dim]floor: {floor}[/]", f"[dim]{median(rates):.1f}[/]")
    console.print(table)
    for one in figures:
        console.print(f"{one.workload.name}: {one.workload.what}", style="dim")


def _row(one: Figures, form: str) -> list[str]:
    return [
        one.workload.name,
        form,
        f"{one.median_of(form, lambda run: run.rounds_per_s):.1f}",
        *(_beside_target(one, form, floor, "{:.2f}", 1.0) for floor in (PLAIN, SHARED)),
        _beside_target(one, form, "first_round_s", "{:.1f}", 1.0),
        _beside_target(one, form, "peak_pss_bytes", "{:.2f}", 1e9),
        f"{one.median_of(form, lambda run: run.processor_s):.1f}",
    ]


def _beside_target(one: Figures, form: str, quantity: str, pattern: str, unit: float) -> str:
    value, target = one.quantity(form, quantity), one.workload.target(form, quantity)
    shown = pattern.format(value / unit)
    if target is None:
        return shown
    sign = "≥" if quantity in (PLAIN, SHARED) else "≤"
    colour = "green" if target.met(value) else "red"
    return f"[{colour}]{shown} ({sign} {target.bound / unit:g})[/]"
