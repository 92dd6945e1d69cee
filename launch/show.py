"""What the command line prints of results and of what there is to choose from."""

import difflib
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pflsim import catalogue
from pflsim.errors import DescriptionError
from pflsim.record.report import comparison_table, three_digits
from pflsim.record.result import Result
from pflsim.timing import availability, devices, faults, links


class Screen(Console):
    """Standard output with tables and styles; raises BrokenPipeError when nobody reads it any more."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to the command line what that means."""
        raise BrokenPipeError


def show_results(results: Sequence[Result]) -> None:
    """One row per run, and where the results lie."""
    console = Screen()
    console.print(comparison_table([result.summary for result in results], console.width))
    for result in results:
        for remark in remarks(result.summary):
            console.print(f"{result.summary['algorithm']}: {remark}")
    for result in results:
        console.print(f"results of {result.summary['algorithm']}: {result.directory}", soft_wrap=True)


def remarks(summary: Mapping[str, Any]) -> list[str]:
    """What the table does not show and nobody should miss."""
    remarks = [f"warning: {warning}" for warning in summary.get("warnings", [])]
    rejected = summary.get("rejected_uploads", 0)
    if rejected:
        remarks.append(f"warning: {rejected} uploads were not finite and were rejected; does it diverge?")
    for way, found in (summary.get("compression") or {}).items():
        sizes = [three_digits(found[name] / 1e6) for name in ("payload_bytes", "raw_bytes")]
        remarks.append(f"{way} {sizes[0]} MB, which would have been {sizes[1]} MB without a codec")
    accuracy = summary.get("accuracy") or {}
    if accuracy.get("weighted") is not None and accuracy.get("loss") is None:
        remarks.append("warning: some models that were evaluated give a loss that is not finite; does it diverge?")
    if energy := summary.get("energy"):
        remarks.append(_energy_in_words(energy))
    rounds, most = summary["rounds"], summary.get("most_rounds", summary["rounds"])
    if rounds != most or not str(summary.get("stopped", "")).endswith("rounds are done"):
        done = f"{rounds} rounds" if rounds == most else f"{rounds} to {most} rounds"
        remarks.append(f"ended after {done}: {summary.get('stopped')}")
    return remarks


def _energy_in_words(energy: Mapping[str, Any]) -> str:
    """What the clients have spent, on what, who most, and the server if it is known."""
    clients_j, most_j = energy["clients_j"], energy["most_j"]
    parts = [(part, energy[f"clients_{part}_j"]) for part in ("computing", "sending", "idle")]
    shares = ", ".join(f"{100 * joules / clients_j:.0f} % {part}" for part, joules in parts) if clients_j else ""
    told = f"energy: {clients_j:.4g} J at the clients" + (f" ({shares})" if shares else "")
    told += f", most at {energy['most_at']}: {most_j:.3g} J" if most_j else ""
    return told + (f"; {energy['server_j']:.4g} J at the server" if energy["server_j"] is not None else "")


def show_rooms(room: str | None) -> None:
    """The names in a room (or in all), each with its first sentence and its settings; or one part, by its name."""
    known = [*catalogue.ROOMS, *_PRESETS]
    console = Screen()
    if room is not None and room not in known:
        _show_parts(room, known, console)
        return
    for shown in [room] if room else known:
        rows = _presets(shown) if shown in _PRESETS else _files(shown)
        table = Table("name", "what it is", "settings", title=shown, title_justify="left", title_style="bold")
        table.box, table.padding = None, (0, 2, 0, 0)
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        console.print()
    if room is None:
        console.print(f"In a table, name = ...; instead of a name, {catalogue.OWN}.", markup=False)


def _show_parts(name: str, known: Sequence[str], console: Console) -> None:
    """Everything that is called `name`: what it is, and its settings one by one with what its file says about them."""
    parts = {room: catalogue.names(room) for room in catalogue.ROOMS}
    rooms = [room for room, names in parts.items() if name.replace("_", "-") in names or ":" in name]
    if not rooms:
        everything = sorted({*known, *(one for names in parts.values() for one in names)})
        close = difflib.get_close_matches(name.lower(), everything, n=1, cutoff=0.5)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise DescriptionError("list", name, f"known are {', '.join(known)}, and what they list{meant}")
    for room in rooms[:1] if ":" in name else rooms:
        found = catalogue.outsider(name, "list") if ":" in name else catalogue.find(room, name, "list")
        module = inspect.getmodule(found)
        console.print(name if ":" in name else f"{name}, one of {room}", style="bold", markup=False)
        for documented in (module, found):
            own = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
            if own and not own.startswith(f"{found.__name__}("):  # what a dataclass without a docstring has
                console.print(own, end="\n\n", markup=False, soft_wrap=True)
        table = Table("setting", "default", "", box=None, padding=(0, 2, 0, 0))
        comments = _comments(found)
        for setting in catalogue.settings_of(found).values():
            table.add_row(*map(escape, (setting.name, _default(setting), comments.get(setting.name, ""))))
        if table.row_count:
            console.print(table)
        console.print()


def _comments(found: Callable[..., Any]) -> dict[str, str]:
    """What stands behind a setting in the source, also of a class that it comes from; without a source, nothing."""
    lines: list[str] = []
    for part in reversed(inspect.getmro(found)) if inspect.isclass(found) else (found,):
        with suppress(OSError, TypeError):
            lines += inspect.getsource(part).splitlines()
    settings = (re.match(r"\s+(\w+): [^#]*#\s*(?:noqa: \w+\s*#\s*)?(.*)", line) for line in lines)
    return {setting.group(1): setting.group(2) for setting in settings if setting}


def _files(room: str) -> Iterator[tuple[str, str, str]]:
    for name in catalogue.names(room):
        settings = catalogue.settings_of(catalogue.find(room, name, room))
        yield name, first_sentence(room, name), ", ".join(map(_setting, settings.values()))


def _presets(of: str) -> Iterator[tuple[str, str, str]]:
    if of in _KINDS:
        for name, kind in _KINDS[of].items():
            yield f'kind = "{name}"', _sentence(kind), ", ".join(map(_setting, catalogue.settings_of(kind).values()))
    elif of == "devices":
        for name, flops_per_second in devices.PRESETS.items():
            yield name, f"{flops_per_second / 1e9:g} GFLOP/s, sustained", ""
        for name, kind in devices.KINDS.items():
            typical = [] if name in devices.WITHOUT_TYPICAL else ["flops_per_second (required)"]
            settings = [*typical, *map(_setting, catalogue.settings_of(kind).values()), "server_flops_per_second"]
            yield f'kind = "{name}"', _sentence(kind), ", ".join(settings)
    else:
        for name, preset in links.PRESETS.items():
            client, server = preset["client"], preset["server"]["uplink_mbps"]
            rates = f"clients {client['uplink_mbps']:g} up, {client['downlink_mbps']:g} down, server {server:g} Mbit/s"
            yield name, f"{rates}, latency {preset['latency_ms']:g} ms", ""


_PRESETS = ("devices", "links", "availability", "fault")
_KINDS: dict[str, Mapping[str, Callable[..., Any]]] = {"availability": availability.KINDS, "fault": faults.KINDS}


def first_sentence(room: str, name: str) -> str:
    """The first sentence of a file's docstring."""
    return _sentence(importlib.import_module(f"pflsim.{room}.{name.replace('-', '_')}"))


def _sentence(documented: object) -> str:
    text = " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())
    return re.split(r'\.(?= ["A-Z]|$)', text)[0]


def _setting(parameter: inspect.Parameter) -> str:
    """A setting as the description writes it; one without a default is required, or `none` if it may be absent."""
    required = parameter.default is inspect.Parameter.empty
    return f"{parameter.name} (required)" if required else f"{parameter.name}={_default(parameter)}"


def _default(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return "required"
    return "none" if default is None else json.dumps(default)
