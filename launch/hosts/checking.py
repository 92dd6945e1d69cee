"""`pflsim hosts check`: whether the machines of a hosts.toml can take part in a run, and how far away they are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from launch.admission import SHOWN
from launch.control import versions
from launch.hosts.hostfile import read_hosts
from launch.hosts.own import own_host
from launch.hosts.visit import Visit, Visited
from launch.local import IMPORTS_S, order_to_build
from launch.screen import fitted
from launch.show import Screen
from launch.tables import table
from pflsim.record.report import three_digits
from pflsim.spec import validate

RUN_ID = b"checking"


def check_hosts(path: Path, tables: Mapping[str, Any] | None) -> bool:
    """Print a table of all machines; whether each of them can take part. `tables` describe the run, if there is one."""
    file = read_hosts(path)
    description = None if tables is None else validate(tables)
    mine: Mapping[str, str] = {}
    with Visit(file) as visit:
        if description is not None:
            order = order_to_build(description, description.beside, RUN_ID)
            longest_s = description.run.patience_s + IMPORTS_S
            with own_host() as own:
                mine = own.build(order, longest_s, visit.listen)["has"]
        visit.await_all()
        visit.measure_links()
        if description is not None:
            visit.build(order, longest_s)
    problems = {one.name: problems_of(one, mine) for one in visit.found.values()}
    _show(list(visit.found.values()), problems, bool(tables))
    return not any(problems.values())


def problems_of(one: Visited, mine: Mapping[str, str]) -> list[str]:
    """Why a machine cannot take part; `mine` is what this one has built, if it has."""
    has: Mapping[str, Any] = one.plan["has"] if one.plan else {}
    wanted = [(versions(), one.versions), *([(mine, has)] if has else [])]
    differ = {
        what: f"has {what} {theirs.get(what)!s:.{SHOWN}}, and this machine {value:.{SHOWN}}"
        for ours, theirs in wanted
        for what, value in ours.items()
        if theirs and theirs.get(what) != value
    }
    return [*([one.why_not] if one.why_not else []), *differ.values()]


def _show(found: Sequence[Visited], problems: Mapping[str, Sequence[str]], has_run: bool) -> None:
    """One row per machine, and below it what is wrong."""
    columns = ["host", "", "Python", "pflsim", "torch", *(["data"] if has_run else [])]
    shown = table("", *columns, "cores", "free\nGB", "clock\ns", "ms", "up\nMbit/s", "down\nMbit/s")
    shown.title, shown.padding = None, (0, 1, 0, 0)
    for column in shown.columns[1:]:
        column.no_wrap = True  # what is too long for the screen is a host's name
    for one in found:
        bad = bool(problems[one.name])
        cells = [escape(one.name), "[red]no[/red]" if bad else "[green]ok[/green]", one.python]
        cells += [_compared(one, what) for what in ("pflsim", "torch")]
        cells += [_data(one)] * has_run
        shown.add_row(*cells, *_offers(one), *_measured(one))
    console = Screen()
    console.print(shown)
    for name, why in problems.items():
        for words in why:
            console.print(fitted(f"{name}: {words}", hanging=2), markup=False, style="red", soft_wrap=True)
    console.print("ms: one way; rates: of one connection, as a run has it, encrypted", style="dim")


def _compared(one: Visited, what: str) -> str:
    theirs = str(one.versions.get(what, ""))
    shown = escape(theirs.partition("+")[0])
    return shown if not theirs or theirs == versions()[what] else f"[red]{shown}[/red]"


def _data(one: Visited) -> str:
    return str(one.plan["has"]["data"])[:6] if one.plan else ""


def _offers(one: Visited) -> list[str]:
    if one.offers is None:
        return ["", ""]
    return [str(one.offers.cores), f"{one.offers.memory_bytes / 1e9:.1f}"]


def _measured(one: Visited) -> list[str]:
    if one.link is None:
        return [""] * 4
    rates = [three_digits(rate) for rate in (one.link.up_mbps, one.link.down_mbps)]
    ahead_s = round(one.link.clock_ahead_s, 3) + 0.0  # never -0.000
    return [f"{ahead_s:+.3f}", three_digits(1e3 * one.link.latency_s), *rates]
