"""`python -m launch.fidelity`: is the virtual clock's prediction what a real network does?

Four studies of a server and four clients, each on a machine of its own of a test bed: real TCP with CURVE over lines
with real rates or latencies, under the wall clock; beside them the same studies by the virtual clock. Wanted: the
median round within 5 % of the prediction. What each client has sent is compared with its interface's counter, too:
wanted within 2 %. The first round is left out: memory is touched and connections open up then.
"""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from launch.fidelity.bed import Bed, why_not
from launch.fidelity.cases import CASES, Case
from launch.fidelity.counted import expected_bytes
from launch.fidelity.runs import BedRun, predicted, round_times_s

MOST_OFF = 0.05
MOST_BYTES_OFF = 0.02
LEAST_BYTES = 3_000_000
"""Of less than that, what opens connections and the facts for the record are a large part."""


@dataclass(frozen=True)
class Compared:
    """What a case has come to; times are of the median round, bytes those that all clients have sent."""

    name: str
    predicted_s: float
    measured_s: float
    recorded_bytes: int
    counted_bytes: int

    @property
    def off(self) -> float:
        """By how much the measured time is longer than the predicted one, as a fraction of that."""
        return self.measured_s / self.predicted_s - 1

    @property
    def bytes_off(self) -> float:
        """By how much the kernel has counted more than the record says, as a fraction of that."""
        return self.counted_bytes / self.recorded_bytes - 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("cases", nargs=-1, type=click.Choice([case.name for case in CASES]))
@click.option("--rounds", type=click.IntRange(min=2), default=12, show_default=True, help="Rounds of each study.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all figures to this file.")
def main(cases: tuple[str, ...], rounds: int, path: Path | None) -> None:
    """Compare the virtual clock with real networks of this machine's own; all CASES if none is named."""
    reason = why_not()
    if reason:
        raise click.ClickException(f"there can be no test bed here: {reason}")
    found = []
    for case in CASES:
        if case.name in cases or not cases:
            click.echo(f"{case.name} ...", err=True)
            with tempfile.TemporaryDirectory(prefix="pflsim-fidelity-") as place:
                found.append(compare(case, rounds, Path(place)))
    Console().print(table(found))
    if path is not None:
        path.write_text(json.dumps([vars(one) for one in found], indent=2) + "\n", encoding="utf-8")


def compare(case: Case, rounds: int, place: Path) -> Compared:
    """Run a case by the virtual clock and over a bed."""
    simulated = predicted(case.tables(is_real=False, rounds=rounds), place)
    with Bed(case.lines, case.disturbance) as bed:
        real = BedRun(bed, case.machines, case.tables(is_real=True, rounds=rounds), place).finish()
        counted = sum(bed.counted_bytes(machine)[0] for machine in case.machines)
    predicted_s, measured_s = (median(round_times_s(result)[1:]) for result in (simulated, real))
    return Compared(case.name, predicted_s, measured_s, expected_bytes(real), counted)


def table(found: Iterable[Compared]) -> Table:
    """One row per case."""
    shown = Table("median round", box=None, padding=(0, 2, 0, 0))
    times, sizes = f"off (±{MOST_OFF:.0%})", f"off (±{MOST_BYTES_OFF:.0%})"
    for heading in ("predicted", "measured", times, "recorded", "counted", sizes):
        shown.add_column(heading, justify="right")
    for one in found:
        megabytes = [f"{count / 1e6:.2f} MB" for count in (one.recorded_bytes, one.counted_bytes)]
        is_much = one.recorded_bytes >= LEAST_BYTES
        bytes_off = _off(one.bytes_off, MOST_BYTES_OFF) if is_much else "too few"
        times_s = [f"{one.predicted_s:.3f} s", f"{one.measured_s:.3f} s", _off(one.off, MOST_OFF)]
        shown.add_row(one.name, *times_s, *megabytes, bytes_off)
    return shown


def _off(fraction: float, most: float) -> str:
    return f"[{'green' if abs(fraction) <= most else 'red'}]{fraction:+.1%}[/]"


if __name__ == "__main__":
    main()
