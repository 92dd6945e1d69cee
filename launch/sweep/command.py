"""The command `pflsim sweep`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.compare.comparing import compare
from launch.compare.gather import gather
from launch.compare.picture import save_picture
from launch.sweep.cache import Cache
from launch.sweep.display import Display
from launch.sweep.figures import figures, is_whole
from launch.sweep.files import write_all
from launch.sweep.page import sweep_page
from launch.sweep.plan import Plan
from launch.sweep.show import show_plan, show_table
from launch.sweep.sweeping import Sweeping
from pflsim.catalogue import near_match
from pflsim.errors import DescriptionError
from pflsim.sweep import Cell, Sweep, read_sweep


@dataclass(frozen=True)
class Options:
    """What the command line says beside the file."""

    settings: Sequence[str] = ()
    out: Path | None = None
    cache: Path | None = None
    jobs: int | None = None
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    quiet: bool = False


def sweep(path: Path, options: Options) -> bool:
    """Run a sweep, write and print its table; whether every cell has all of its figures."""
    found = read_sweep(path, options.settings)
    cells = _chosen(found, options)
    directory = _directory(found, options)
    cache = Cache(options.cache or directory / "runs")
    plan = Plan(found, cache)
    display = Display(quiet=options.quiet)
    sweeping = Sweeping(plan, cache, cells, options.jobs, display)
    sweeping.survey()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DescriptionError("--out", str(directory), f"cannot be made: {problem.strerror}") from problem
    try:
        sweeping.run(lambda: write_all(plan, cache, directory))
    except KeyboardInterrupt as problem:
        problem.add_note(f"{plan.remaining(cells)} runs are left; the same command goes on where this one was")
        raise
    finally:
        display.close()
        write_all(plan, cache, directory)
        (directory / "sweep.html").write_text(sweep_page(plan), encoding="utf-8")
    show_table(plan)
    _draw(directory)
    other = [run for cell in cells for run in plan.reported(cell) or () if cache.holds(run.key)]
    other = [run for run in other if cache.is_of_other_code(run.key)]
    if other:
        print(f"warning: {len(other)} runs were made by other code of pflsim; a new --cache runs them again")
    print(f"results: {directory} (pflsim compare {directory} tells what differs)")
    return is_whole({at: figure for at, figure in figures(plan).items() if at in {cell.at for cell in cells}})


def _draw(directory: Path) -> None:
    """Every seed as a point, as `pflsim compare` draws them, with the first row as the baseline."""
    found = gather([directory])
    if found.runs:
        save_picture(compare(found.runs, None, None, found.left_out), directory / "table")


def check_sweep(path: Path, options: Options) -> None:
    """Print what a sweep would run; starts nothing."""
    found = read_sweep(path, options.settings)
    cells = _chosen(found, options)
    cache = Cache(options.cache or _directory(found, options) / "runs")
    plan = Plan(found, cache)
    Sweeping(plan, cache, cells, options.jobs, Display(quiet=True)).survey()
    show_plan(plan, cells)


def _directory(found: Sweep, options: Options) -> Path:
    own = Path(found.file.sweep.out) if found.file.sweep.out else Path("results") / found.name
    return options.out or own


def _chosen(found: Sweep, options: Options) -> list[Cell]:
    """The cells that are to be run: those of all rows and columns, or of the named ones."""
    for option, names, known in (
        ("--row", options.rows, [row.name for row in found.rows]),
        ("--column", options.columns, list(found.columns)),
    ):
        for name in names:
            if name not in known:
                raise DescriptionError(option, name, near_match(name, known))
    return [
        cell
        for cell in found.cells
        if (not options.rows or cell.row.name in options.rows)
        and (not options.columns or cell.column in options.columns)
    ]
