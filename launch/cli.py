"""The command line: one function for each command, such as `pflsim run`, `sweep` and `explain`.

Exit codes: 0 done, 1 the run failed, 2 the description is wrong, 130 interrupted.
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from launch import screen
from launch.hosts.commands import hosts_commands
from launch.interrupts import interrupt_once, interrupted_above_all
from pflsim.errors import DescriptionError, RunFailed, TooEarly

if TYPE_CHECKING:
    from launch.hosts.starting import Starter
    from launch.lobby import Lan

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130

_description = click.argument("description", metavar="RUN.toml", type=click.Path(path_type=Path))
_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
_set = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key, such as run.rounds=10."
)
_algorithm = click.option("--algorithm", metavar="NAME", help="Run this method alone, with the file's settings for it.")
_OVER_MACHINES = (
    click.option("--listen", metavar="tcp://ADDRESS:PORT", help="Run over several machines, which join here."),
    click.option("--await-hosts", type=click.IntRange(min=1), help="With --listen: how many machines join; default 1."),
    click.option("--await-s", type=click.FloatRange(min=0), help="With --listen: for how long they may; default 600."),
    click.option("--local-clients", type=int, help="With --listen: so many clients on this machine; default none."),
    click.option("--insecure", is_flag=True, help="With --listen: no keys, nothing encrypted, whoever comes may join."),
    click.option("--token-file", type=click.Path(path_type=Path), help="With --listen: put the token there, not out."),
    click.option("--hosts", type=click.Path(path_type=Path), help="Start this file's hosts by ssh; see hosts.toml."),
    click.option("--cluster", metavar="dask://HOST:PORT", help="Start a host on each worker of this Dask cluster."),
)


def _over_machines(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options that say where its processes run; it gets them as `over_machines`."""
    for option in reversed(_OVER_MACHINES):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pflsim")
def pflsim() -> None:
    """Simulate personalised federated learning with real processes and real messages."""


@pflsim.command()
@_description
@_set
@_algorithm
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/NAME-TIME.")
@click.option("--save-models", is_flag=True, help="Keep every client's model, as --set record.models=true does.")
@click.option("--quiet", is_flag=True, help="Print only the results.")
@_over_machines
def run(
    description: Path,
    settings: tuple[str, ...],
    algorithm: str | None,
    out: Path | None,
    save_models: bool,
    quiet: bool,
    **over_machines: Any,
) -> None:
    """Run a description to its end and print what came out."""
    from launch.comparison import run_all

    tables = _tables(description, (*settings, *(["record.models=true"] if save_models else [])), algorithm)
    results = run_all(tables, out, quiet=quiet, lan=_lan(**over_machines))
    from launch.show import show_results  # here, because what draws tables takes 0.2 s to import

    show_results(results)


@pflsim.command()
@_directory
@click.option("--quiet", is_flag=True, help="Print only the results.")
@_over_machines
def resume(directory: Path, quiet: bool, **over_machines: Any) -> None:
    """Let a run that was interrupted, failed or was killed go on from its last checkpoint, to the same end.

    Where it goes on is as free as where it began: here, or over machines, by other hosts, more or fewer.
    """
    from launch.resume import resume
    from launch.show import show_results

    show_results([resume(directory, quiet=quiet, lan=_lan(**over_machines))])


@pflsim.command()
@click.option(
    "--join", "token", required=True, metavar="TOKEN", help="What `pflsim run --listen` has printed; - reads it."
)
@click.option("--clients", type=int, help="Take so many; default: in proportion to the cores of all machines.")
@click.option("--name", help="What this machine is called in the run; default: its host name.")
@click.option("--logs", type=click.Path(path_type=Path), help="Folder; default results/host-NAME-RUN.")
@click.option("--tied", is_flag=True, help="End when standard input does, as when an ssh that has started this ends.")
def host(token: str, clients: int | None, name: str | None, logs: Path | None, tied: bool) -> None:
    """Join a run of another machine and run a share of its clients here, on this machine's own data."""
    from launch.joining import join

    join(token, clients, name, logs, is_tied=tied)


@pflsim.command()
@_description
@_set
@_algorithm
def check(description: Path, settings: tuple[str, ...], algorithm: str | None) -> None:
    """Validate a description and print what it would run; starts no clients."""
    from launch.check import check_all

    check_all(_tables(description, settings, algorithm))


@pflsim.command()
@_directory
@click.option("--round", "number", type=int, help="Only this round, with each part of its critical path.")
@click.option("--target", type=float, metavar="ACCURACY", help="Also when the accuracy, a fraction of 1, was reached.")
@click.option("--trace", is_flag=True, help="Also write trace.json into DIR; it opens in Perfetto.")
@click.option("--pictures", is_flag=True, help="Also draw timeline and waiting into DIR, as .png and .svg.")
@click.option(
    "--against", multiple=True, metavar="DIR", type=click.Path(path_type=Path), help="Draw who took part there too."
)
@click.option("--window", metavar="FROM:TO", help="What the timeline shows, in simulated seconds, such as 1.5:3.")
def explain(
    directory: Path,
    number: int | None,
    target: float | None,
    trace: bool,
    pictures: bool,
    against: tuple[Path, ...],
    window: str | None,
) -> None:
    """Say what the simulated time of a run went into: who was waited for, why, and who was idle."""
    from launch.explain import explain
    from launch.finished import save_pictures, save_trace

    explain(directory, number, target)
    if trace:
        print(f"trace: {save_trace(directory)}")
    if pictures or window or against:
        print(f"pictures: {', '.join(map(str, save_pictures(directory, number, window, against)))}")


@pflsim.command()
@_directory
@click.option("--out", type=click.Path(path_type=Path), help="The page to write; default report.html in DIR.")
def report(directory: Path, out: Path | None) -> None:
    """Make one page, report.html, of all that a run was and did; it needs no network and prints well."""
    from launch.report import write_report

    print(f"report: {write_report(directory, out)}")


@pflsim.command()
@_directory
def watch(directory: Path) -> None:
    """Show a run while it goes on, or what became of it: rounds, accuracy, clients, bytes, memory. Press q to leave."""
    from launch.watch import watch

    watch(directory)


@pflsim.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", type=float, metavar="ACCURACY", help="Also what it cost to reach it, a fraction of 1.")
@click.option("--format", "form", type=click.Choice(["text", "csv", "json"]), default="text", show_default=True)
def cost(directories: tuple[Path, ...], target: float | None, form: str) -> None:
    """Say what the communication of a run cost, byte by byte; of several runs, side by side."""
    from launch.cost import show_cost

    show_cost(directories, target, form)


@pflsim.command()
@click.argument("subject", metavar="DIR|RUN.toml", type=click.Path(path_type=Path))
@_set
@_algorithm
def verify(subject: Path, settings: tuple[str, ...], algorithm: str | None) -> None:
    """Check what must hold in the record of a run; or run a description twice, placed differently, and compare.

    Exit code 1 if something does not hold, or if the two runs differ.
    """
    from launch.verify import verify_description, verify_record

    if not (verify_record(subject) if subject.is_dir() else verify_description(_tables(subject, settings, algorithm))):
        sys.exit(FAILED)


@pflsim.command()
@_directory
@click.option("--actor", metavar="NAME", help="Only what is said of this client, server or process, such as c007.")
@click.option("--level", type=click.Choice(["debug", "info", "warning", "error"]), default="debug", help="At least.")
@click.option("--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--json", "raw", is_flag=True, help="As lines of JSON.")
def logs(directory: Path, actor: str | None, level: str, follow: bool, raw: bool) -> None:
    """Show what the processes of a run logged, in one stream."""
    from launch.logs import show_logs

    show_logs(directory, actor, level, follow=follow, raw=raw)


@pflsim.command()
@_directory
@click.option(
    "--format", "kind", type=click.Choice(["csv", "parquet", "json", "tensorboard", "mlflow", "wandb"]), required=True
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write; default: DIR/FORMAT.")
def export(directory: Path, kind: str, out: Path | None) -> None:
    """Write the tables of a run's record and its summary into a folder, for other programs."""
    from launch.export import export

    export(directory, kind, out)


@pflsim.command()
@_directory
@_set
def retime(directory: Path, settings: tuple[str, ...]) -> None:
    """Say how long a finished synchronous run would have taken on other devices and links; trains nothing."""
    from launch.retime import retime

    retime(directory, settings)


@pflsim.command()
@_description
@_set
@click.option("--out", type=click.Path(path_type=Path), default="host.toml", show_default=True, help="File to write.")
def calibrate(description: Path, settings: tuple[str, ...], out: Path) -> None:
    """Measure how fast this host trains a description's model, for `devices = { file = ... }`."""
    from launch.calibrate import calibrate

    calibrate(_tables(description, settings, None), out)


@pflsim.command()
@_description
@_set
@click.option("--steps", type=click.IntRange(min=0), default=100, show_default=True, help="Down the mean loss.")
def heterogeneity(description: Path, settings: tuple[str, ...], steps: int) -> None:
    """Measure how unlike clients are within and between groups that take turns; starts no clients."""
    from launch.heterogeneity import show_heterogeneity

    show_heterogeneity(_tables(description, settings, None), steps)


@pflsim.command()
@click.argument("description", metavar="SWEEP.toml", type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override, such as base.run.rounds=10.")
@click.option("--out", type=click.Path(path_type=Path), help="Results folder; default results/NAME.")
@click.option("--cache", type=click.Path(path_type=Path), help="Where runs are kept and found; default OUT/runs.")
@click.option("--jobs", type=click.IntRange(min=1), help="Most runs at a time; default: one for each core.")
@click.option("--row", "rows", multiple=True, metavar="NAME", help="Run only this row; the table shows all.")
@click.option("--column", "columns", multiple=True, metavar="NAME", help="Run only this column.")
@click.option("--check", "is_check", is_flag=True, help="Validate and print the plan; run nothing.")
@click.option("--quiet", is_flag=True, help="Print only the results.")
def sweep(
    description: Path,
    settings: tuple[str, ...],
    out: Path | None,
    cache: Path | None,
    jobs: int | None,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    is_check: bool,
    quiet: bool,
) -> None:
    """Run a table of methods, settings and seeds, side by side; what is done already is not done again.

    Exit code 1 if a cell of the table lacks a figure, because a run failed or diverged.
    """
    from launch.sweep.command import Options, check_sweep, sweep

    options = Options(settings, out, cache, jobs, rows, columns, quiet)
    if is_check:
        check_sweep(description, options)
    elif not sweep(description, options):
        sys.exit(FAILED)


@pflsim.command()
@click.argument("places", nargs=-1, required=True, metavar="DIR|RUN.toml ...", type=click.Path(path_type=Path))
@click.option("--baseline", metavar="METHOD", help="What the others are compared with; default: the first one.")
@click.option("--target", type=float, metavar="ACCURACY", help="Also what it took to reach it, a fraction of 1.")
@click.option("--seed", "seeds", multiple=True, type=int, help="Run the descriptions with this seed; may be repeated.")
@click.option("--format", "form", type=click.Choice(["text", "csv", "markdown", "latex"]), default="text")
@click.option("--out", type=click.Path(path_type=Path), help="Also write every format and a picture into this folder.")
def compare(
    places: tuple[Path, ...],
    baseline: str | None,
    target: float | None,
    seeds: tuple[int, ...],
    form: str,
    out: Path | None,
) -> None:
    """Compare methods over seeds: folders of runs, with those beside them, or of sweeps; or descriptions to be run."""
    from launch.compare.command import compare_places

    compare_places(places, baseline, target, seeds, form, out)


@pflsim.command(name="list")
@click.argument("room", required=False)
def list_(room: str | None) -> None:
    """List what a description can name: methods, models, data sets and so on. ROOM is one kind of them, or one name."""
    from launch.show import show_rooms

    show_rooms(room)


@pflsim.command()
@click.argument("kind", type=click.Choice(["algorithm"]))
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), default=".", help="Where to write; default: here.")
def new(kind: str, name: str, folder: Path) -> None:
    """Begin a method of your own: write NAME.py, a whole method to change, and NAME.toml, which runs it."""
    from launch.new import new_method

    new_method(name, folder)


@pflsim.command(name="check-method")
@click.argument("method", metavar="FILE.py:NAME")
@_set
def check_method(method: str, settings: tuple[str, ...]) -> None:
    """Try whether a method keeps the rules of all methods, on a small problem; --set lam=0.1 changes a setting.

    Exit code 1 if it breaks one.
    """
    from launch.new import check_method

    if not check_method(method, settings):
        sys.exit(FAILED)


def _lan(
    listen: str | None, hosts: Path | None, cluster: str | None, insecure: bool, token_file: Path | None, **given: Any
) -> "Lan | None":
    from launch.lobby import lan_of

    starter = _starter(hosts, cluster, given["await_hosts"])
    return lan_of(listen, insecure=insecure, starter=starter, token_file=token_file, **given)


def _starter(hosts: Path | None, cluster: str | None, workers: float | None) -> "Starter | None":
    if hosts and cluster:
        raise DescriptionError("--hosts, --cluster", (str(hosts), cluster), "give one of the two")
    if hosts:
        from launch.hosts.starting import SshHosts

        if workers is not None:
            raise DescriptionError("--await-hosts", int(workers), "is not needed with --hosts, whose file names them")
        return SshHosts.read(hosts)
    if cluster:
        from launch.hosts.cluster import DaskWorkers

        return DaskWorkers(cluster, None if workers is None else int(workers))
    return None


def _tables(description: Path, settings: tuple[str, ...], algorithm: str | None) -> dict[str, Any]:
    from pflsim.outside import placed
    from pflsim.spec import override, read, with_algorithm

    tables = read(description)
    if "row" in tables or "sweep" in tables:
        raise DescriptionError("file", str(description), "is a sweep: `pflsim sweep` runs it, --check checks it")
    if isinstance(tables.setdefault("run", {}), dict):
        tables["run"].setdefault("name", description.stem)
    if algorithm:
        tables = with_algorithm(tables, placed(algorithm, description.parent))
    for assignment in settings:
        tables = override(tables, assignment)
    placed_tables: dict[str, Any] = placed(tables, description.parent)
    return placed_tables


pflsim.add_command(hosts_commands(_tables))


def guarded(command: Callable[[], object]) -> int:
    """Run `command` and turn what goes wrong into a message and an exit code."""
    try:
        with interrupted_above_all():
            command()
            sys.stdout.flush()
    except DescriptionError as problem:
        screen.say(f"pflsim: {problem}")
        return WRONG
    except RunFailed as problem:
        screen.say("\n".join([f"pflsim: the run failed: {problem}", *_notes(problem)]))
        return FAILED
    except TooEarly as problem:
        screen.say(f"pflsim: {problem}")
        return FAILED
    except (KeyboardInterrupt, click.Abort) as problem:
        screen.say("\n".join(["pflsim: interrupted; everything that ran has been ended", *_notes(problem)]))
        return INTERRUPTED
    except BrokenPipeError:  # as in `pflsim list | head -1`: whoever reads has read enough
        screen.abandon(sys.stdout.fileno())
    except sqlite3.Error as problem:
        screen.say(f"pflsim: the record cannot be read: {problem}")
        return FAILED
    except OSError as problem:
        where = problem.filename or ("standard output" if screen.is_refused() else "")
        where += ": " if where else ""
        screen.say(f"pflsim: {where}{problem.strerror or problem}")
        return FAILED
    except click.ClickException as problem:
        problem.show()
        return WRONG
    except click.exceptions.Exit as problem:
        return problem.exit_code
    except Exception as problem:
        from pflsim.outside import blamed

        own = blamed(problem)
        if own is None:
            raise
        screen.say(f"pflsim: {own}")
        return WRONG
    return DONE


def _notes(problem: BaseException) -> list[str]:
    return [f"pflsim: {note}" for note in getattr(problem, "__notes__", [])]


def _obey() -> None:
    """What `pflsim.main` does, but an interrupt stays what it is, with its notes."""
    with pflsim.make_context("pflsim", sys.argv[1:]) as context:
        pflsim.invoke(context)


def main() -> None:
    """The entry point `pflsim`."""
    screen.prepare()
    sys.path.append(str(Path.cwd()))  # where a user's "package.module:function" lies; last, for it hides no library
    try:
        interrupt_once()
        code = guarded(_obey)
    except KeyboardInterrupt:  # while something else was being told
        code = INTERRUPTED
    leave(code)


def leave(code: int) -> NoReturn:
    """End this process, in which all is over, with an exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more Ctrl-C changes nothing
    screen.flush()
    if code == INTERRUPTED:
        # Python remembers an interrupt that passed through exec of a string, as where a dataclass is made, even if it
        # was caught, and `python -m` then dies of SIGINT whatever code sys.exit is given.
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
