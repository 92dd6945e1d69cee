"""The command line: `pflsim run`, `pflsim check`, `pflsim list`.

Exit codes: 0 done, 1 the run failed, 2 the description is wrong, 130 interrupted.
"""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from launch.interrupts import interrupt_once
from pflsim.errors import DescriptionError, RunFailed

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130

_description = click.argument("description", metavar="RUN.toml", type=click.Path(path_type=Path))
_set = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key, such as run.rounds=10."
)
_algorithm = click.option("--algorithm", metavar="NAME", help="Run this method alone, with the file's settings for it.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pflsim")
def pflsim() -> None:
    """Simulate personalised federated learning with real processes and real messages."""


@pflsim.command()
@_description
@_set
@_algorithm
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/NAME-TIME.")
@click.option("--quiet", is_flag=True, help="Print only the results.")
def run(description: Path, settings: tuple[str, ...], algorithm: str | None, out: Path | None, quiet: bool) -> None:
    """Run a description to its end and print what came out."""
    from launch.comparison import run_all
    from launch.directory import default_directory

    tables = _tables(description, settings, algorithm)
    results = run_all(tables, out or default_directory(tables), quiet=quiet)
    from launch.show import show_results  # here, because what draws tables takes 0.2 s to import

    show_results(results)


@pflsim.command()
@_description
@_set
@_algorithm
def check(description: Path, settings: tuple[str, ...], algorithm: str | None) -> None:
    """Validate a description and print what it would run; starts no clients."""
    from launch.check import check_all

    check_all(_tables(description, settings, algorithm))


@pflsim.command(name="list")
@click.argument("room", required=False)
def list_(room: str | None) -> None:
    """List the methods, models, data sets, partitions, schedules and topologies that a description can name."""
    from launch.show import show_rooms

    show_rooms(room)


def _tables(description: Path, settings: tuple[str, ...], algorithm: str | None) -> dict[str, Any]:
    from pflsim.spec import override, read, with_algorithm

    tables = read(description)
    if isinstance(tables.setdefault("run", {}), dict):
        tables["run"].setdefault("name", description.stem)
    if algorithm:
        tables = with_algorithm(tables, algorithm)
    for assignment in settings:
        tables = override(tables, assignment)
    return tables


def guarded(command: Callable[[], object]) -> int:
    """Run `command` and turn what goes wrong into a message and an exit code."""
    try:
        command()
    except DescriptionError as problem:
        print(f"pflsim: {problem}", file=sys.stderr)
        return WRONG
    except RunFailed as problem:
        print(f"pflsim: the run failed: {problem}", file=sys.stderr)
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        print("pflsim: interrupted; everything that ran has been ended, what was recorded is kept", file=sys.stderr)
        return INTERRUPTED
    except click.ClickException as problem:
        problem.show()
        return WRONG
    except click.exceptions.Exit as problem:
        return problem.exit_code
    return DONE


def main() -> None:
    """The entry point `pflsim`."""
    sys.path.insert(0, str(Path.cwd()))  # where a user's "package.module:function" lies
    interrupt_once()
    code = guarded(lambda: pflsim.main(standalone_mode=False))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is over: one more Ctrl-C changes nothing
    sys.exit(code)


if __name__ == "__main__":
    main()
