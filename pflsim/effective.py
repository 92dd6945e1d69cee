"""The description of a run with every setting that was in force, also those that nobody wrote down.

It is a description itself: run again, it makes the same run, even where a default has changed since.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pflsim import catalogue, sampling
from pflsim.coding import settings as codecs
from pflsim.data import loading
from pflsim.spec import Description
from pflsim.timing import availability, devices, links


def effective(description: Description) -> dict[str, Any]:
    """The tables of `description`, with the defaults of every part that it names."""
    tables = description.as_tables()
    for key, room in (("algorithm", "algorithms"), ("model", "models"), ("topology", "topologies")):
        if key in tables:
            tables[key] = {"name": tables[key]["name"]} | _settings(room, tables[key], "name", key)
    tables["beside"] = [
        {"name": table["name"]} | _settings("algorithms", table, "name", f"beside.{position}")
        for position, table in enumerate(tables["beside"])
    ]
    schedule = tables["schedule"]
    tables["schedule"] = {"kind": schedule["kind"]} | _settings("schedules", schedule, "kind", "schedule")
    if "sampling" in tables["schedule"]:
        tables["schedule"]["sampling"] = sampling.resolved(tables["schedule"]["sampling"])
    tables["data"] = _data(tables["data"])
    tables["devices"] = devices.resolved(description.devices)
    tables["links"] = links.resolved(description.links)
    if "codec" in tables:
        tables["codec"] = codecs.resolved(tables["codec"])
    tables["availability"] = availability.resolved(description.availability)
    plain: dict[str, Any] = _plain(tables)
    return plain


def _settings(room: str, table: Mapping[str, Any], name: str, key: str) -> dict[str, Any]:
    found: Callable[..., Any] = catalogue.find(room, table[name], f"{key}.{name}")
    known = catalogue.settings_of(found)
    given = {setting: value for setting, value in table.items() if setting != name}
    kept = {setting: value for setting, value in given.items() if setting not in known}  # such as model.start
    return catalogue.validated(found, {k: v for k, v in given.items() if k in known}, key) | kept


def _data(table: Mapping[str, Any]) -> dict[str, Any]:
    common, own = loading.settings(table)
    partition = common.partition
    parted = _settings("partitions", partition, "name", "data.partition")
    return asdict(common) | own | {"partition": {"name": partition["name"]} | parted}


def _plain(value: Any) -> Any:
    """What TOML can hold: no None, and lists for tuples."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
