"""`pflsim hosts`: the commands about the machines of a hosts.toml."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

FAILED = 1

Tables = Callable[[Path, tuple[str, ...], str | None], dict[str, Any]]
"""Reads a description, with what the command line sets in it."""


def hosts_commands(tables: Tables) -> click.Group:
    """The group of these commands."""
    file = click.argument("file", metavar="HOSTS.toml", type=click.Path(path_type=Path))
    settings = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the run.")

    @click.group(name="hosts")
    def hosts() -> None:
        """Check or measure the machines of a hosts.toml, which `pflsim run --hosts` starts hosts on."""

    @hosts.command()
    @file
    @click.option("--run", type=click.Path(path_type=Path), metavar="RUN.toml", help="Also that they have its data.")
    @settings
    def check(file: Path, run: Path | None, settings: tuple[str, ...]) -> None:
        """Say of each machine whether it can take part: reachable, versions, data, cores, memory, clock, connection.

        Exit code 1 if one cannot.
        """
        from launch.hosts.checking import check_hosts

        if not check_hosts(file, None if run is None else tables(run, settings, None)):
            sys.exit(FAILED)

    @hosts.command()
    @file
    @click.option(
        "--run", type=click.Path(path_type=Path), metavar="RUN.toml", required=True, help="Whose model it is."
    )
    @settings
    @click.option("--out", type=click.Path(path_type=Path), default="lab", show_default=True, help="Folder to write.")
    def calibrate(file: Path, run: Path, settings: tuple[str, ...], out: Path) -> None:
        """Measure each machine's step time and its connection, and write them as devices and links of a description."""
        from launch.hosts.calibrating import calibrate_hosts

        calibrate_hosts(file, tables(run, settings, None), out)

    @hosts.command(hidden=True)
    @click.option("--name", required=True)
    def answer(name: str) -> None:
        """What the other two start on each machine; it reads a token."""
        from launch.hosts.answering import answer

        answer(name)

    return hosts
