"""`pflsim hosts calibrate`: measures machines and their connections, and writes them as devices and links.

A study that names the files is simulated as it would go on these machines: each client computes and sends as fast as
its host does, shared among the clients of that host.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from launch.directory import taken
from launch.hosts.checking import RUN_ID, problems_of
from launch.hosts.hostfile import read_hosts
from launch.hosts.links import Link
from launch.hosts.own import own_host
from launch.hosts.visit import Visit, Visited
from launch.local import IMPORTS_S, order_to_build
from launch.placement import FORKED_BYTES, assignments
from launch.shares import Capacity, shares
from pflsim.errors import RunFailed
from pflsim.record.report import three_digits
from pflsim.spec import Description, client_names, validate

TIMED_WITHIN_S = 300.0


@dataclass(frozen=True)
class Measured:
    """One machine."""

    name: str
    offers: Capacity
    link: Link
    flops_per_second: float
    """Of one thread that trains alone."""


@dataclass(frozen=True)
class Client:
    """What a client has of its machine when all clients there are at it."""

    host: str
    flops_per_second: float
    up_mbps: float
    down_mbps: float
    latency_ms: float


def calibrate_hosts(path: Path, tables: Mapping[str, Any], out: Path) -> None:
    """Measure the machines of a file with the model of a run, and write a folder of devices and links."""
    file, description = read_hosts(path), validate(tables)
    out = taken(out, description.run.name)
    try:
        found, own_speed = _measure(Visit(file), description)
        told = {one.name: one.clients for one in file.hosts}
        clients = clients_of(found, told, description)
        _write(out, clients, own_speed, description)
    except BaseException:
        if not any(out.iterdir()):
            out.rmdir()
        raise
    for one in found:
        rates = f"{three_digits(one.link.up_mbps)} Mbit/s up, {three_digits(one.link.down_mbps)} down"
        count = sum(client.host == one.name for client in clients)
        print(f"{one.name}: {one.flops_per_second / 1e9:.3g} GFLOP/s, {rates}, {1e3 * one.link.latency_s:.3g} ms")
        print(f"  {count} client{'' if count == 1 else 's'} on {one.offers.cores} cores")
    print(f"{out / 'lab.toml'} has the tables [devices] and [links] for a description in {out}")


def _measure(visit: Visit, description: Description) -> tuple[list[Measured], float]:
    order = order_to_build(description, description.beside, RUN_ID)
    longest_s = description.run.patience_s + IMPORTS_S
    with visit:
        visit.await_all()
        for one in visit.found.values():
            if why := problems_of(one, {}):
                raise RunFailed(one.name, why[0])
        visit.measure_links()
        visit.build(order, longest_s)
        visit.time_steps(TIMED_WITHIN_S)
    with own_host() as own:  # alone, as a machine may be among those that it has started
        own.build(order, longest_s)
        own_speed = own.flops_per_second(TIMED_WITHIN_S)
    return [_measured(one) for one in visit.found.values()], own_speed


def _measured(one: Visited) -> Measured:
    if one.why_not or one.offers is None or one.link is None or one.flops_per_second is None:
        raise RunFailed(one.name, one.why_not or "has not told all")
    return Measured(one.name, one.offers, one.link, one.flops_per_second)


def clients_of(found: Sequence[Measured], told: Mapping[str, int | None], description: Description) -> list[Client]:
    """What each client has, in their order: they are on the hosts on which a run would place them.

    n clients of a host with c cores compute at min(1, c / n) of its speed, and send and receive at 1 / n of its rates.
    """
    by_name = {one.name: one for one in sorted(found, key=lambda one: one.name)}
    offers = {name: Capacity(one.offers.cores, one.offers.memory_bytes, told[name]) for name, one in by_name.items()}
    sizes = [len(actors) for actors in assignments(description).values()]
    clients: list[Client] = []
    for name, processes in shares(offers, sizes, FORKED_BYTES).items():
        mine, sizes = sum(sizes[:processes]), sizes[processes:]
        one = by_name[name]
        speed = one.flops_per_second * min(1.0, one.offers.cores / max(1, mine))
        rates = one.link.up_mbps / max(1, mine), one.link.down_mbps / max(1, mine)
        clients += [Client(name, speed, *rates, 1e3 * one.link.latency_s)] * mine
    return clients


def _write(out: Path, clients: Sequence[Client], own_speed: float, description: Description) -> None:
    names = client_names(description.run.clients)
    told = [(name, one.host, f"{one.flops_per_second:.6g}") for name, one in zip(names, clients, strict=True)]
    _write_csv(out / "devices.csv", ("client", "class", "flops_per_second"), told)
    rates = [(name, f"{one.up_mbps:.6g}", f"{one.down_mbps:.6g}") for name, one in zip(names, clients, strict=True)]
    _write_csv(out / "links.csv", ("client", "uplink_mbps", "downlink_mbps"), rates)
    away = dict(zip(names, (one.latency_ms for one in clients), strict=True)) | {"server": 0.0}
    matrix = [(one, *(f"{0 if one == other else away[one] + away[other]:.6f}" for other in away)) for one in away]
    _write_csv(out / "latency.csv", ("sender", *away), matrix)
    trace = {"kind": "trace", "file": str(out / "links.csv")}
    whole = {
        "uplink_mbps": max(one.down_mbps * _beside(one, clients) for one in clients),
        "downlink_mbps": max(one.up_mbps * _beside(one, clients) for one in clients),
    }
    tables = {
        "devices": {"kind": "trace", "file": str(out / "devices.csv"), "server_flops_per_second": own_speed},
        "links": {
            "client": {"uplink_mbps": trace, "downlink_mbps": trace},
            "server": whole,
            "latency_ms": {"kind": "matrix", "file": str(out / "latency.csv")},
        },
    }
    (out / "lab.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")


def _beside(one: Client, clients: Sequence[Client]) -> int:
    return sum(other.host == one.host for other in clients)


def _write_csv(file: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with file.open("x", encoding="utf-8", newline="") as opened:
        csv.writer(opened, lineterminator="\n").writerows([header, *rows])
