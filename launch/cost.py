"""`pflsim cost`: what the communication of finished (or running) runs cost, as text, CSV or JSON."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from launch.finished import FinishedRun
from launch.screen import fitted
from launch.show import Screen
from launch.tables import MOST_ACTORS, table
from pflsim.errors import DescriptionError
from pflsim.record.cost import Casting, Cost, Flow, Target, cost_of
from pflsim.record.durations import duration
from pflsim.record.pieces import FATES
from pflsim.record.sizes import size


def show_cost(directories: Sequence[Path], target: float | None, form: str) -> None:
    """Print the costs of the runs in these folders."""
    if target is not None and not 0 < target <= 1:
        raise DescriptionError("--target", target, "must be above 0 and at most 1: a fraction, not per cent")
    runs = [FinishedRun(directory) for directory in directories]
    costs = [cost_of(run.reader, run.links, target) for run in runs]
    if form == "json":
        print(json.dumps([_as_json(run, cost) for run, cost in zip(runs, costs, strict=True)], indent=2))
    elif form == "csv":
        _print_csv(runs, costs)
    else:
        _print_text(runs, costs)


def _print_text(runs: Sequence[FinishedRun], costs: Sequence[Cost]) -> None:
    console = Screen()
    for run in runs:
        if run.reservation:
            about = f"{run.directory}: {run.reservation}; what was under way counts as lost"
            console.print(fitted(about, 0, console.width), markup=False)
    if len(runs) > 1:
        console.print(_comparison(runs, costs))
        return
    run, cost = runs[0], costs[0]
    heading = f"{run.description.algorithm.name}: what the method sent, payload and headers charged"
    console.print(_flow_table(heading, "direction", [*cost.directions, cost.total]))
    console.print()
    console.print(_flow_table("", "kind", cost.kinds))
    console.print()
    console.print(_flow_table("", "link", cost.links[:MOST_ACTORS], len(cost.links)))
    console.print()
    console.print(_flow_table("", "client", cost.clients[:MOST_ACTORS], len(cost.clients)))
    console.print()
    if cost.fates:
        console.print(_fate_table(cost))
        console.print()
    for line in sentences(cost, is_done=run.is_whole):
        console.print(fitted(line, 2, console.width), markup=False)


def _flow_table(title: str, what: str, flows: Sequence[Flow], of: int | None = None) -> Table:
    shown = table(title, what, "messages", "payload", "headers", "resent", "lost", "lost bytes")
    for flow in flows:
        numbers = (size(flow.payload_bytes), size(flow.header_bytes), _unless_0(flow.resent_bytes))
        lost = (str(flow.lost_messages) if flow.lost_messages else "–", _unless_0(flow.lost_bytes))
        shown.add_row(flow.name, str(flow.messages), *numbers, *lost)
    if of is not None and of > len(flows):
        shown.caption, shown.caption_justify = f"the first {len(flows)} of {of}, by bytes", "left"
    return shown


def _fate_table(cost: Cost) -> Table:
    shown = table("what became of the work", "", "pieces", "bytes", "computing", "share")
    whole_ns = sum(fate.computing_ns for fate in cost.fates) or 1
    for fate in cost.fates:
        share = f"{100 * fate.computing_ns / whole_ns:.1f} %"
        row = (str(fate.pieces), _unless_0(fate.charged_bytes), duration(fate.computing_ns), share)
        shown.add_row(FATES[fate.name], *row)
    return shown


def sentences(cost: Cost, is_done: bool) -> Iterator[str]:
    """What the tables do not tell; of a run that is not done, the two ends cannot agree yet."""
    if cost.useful_computing is not None:
        told = f"of use: {100 * cost.useful_computing:.1f} % of the clients' computing"
        if cost.useful_bytes is not None:
            told += f", {100 * cost.useful_bytes:.1f} % of the bytes"
        yield told
    for casting in cost.castings:
        yield in_words(casting)
    found = cost.round_summary
    if found is not None:
        first, middle, most = found
        yield (
            f"a round: {size(first.charged_bytes)} the first, {size(middle)} the median, "
            f"{size(most.charged_bytes)} the dearest (round {most.round})"
        )
    yield (
        f"apart, never charged: evaluation {size(cost.evaluation_bytes)}, control {size(cost.control_bytes)}, "
        f"the simulator's stamps {size(cost.stamp_bytes)}"
    )
    if cost.target is not None:
        yield _reached(cost.target)
    if is_done and not cost.ends_agree:
        yield "warning: what senders and receivers counted does not agree; pflsim verify tells more"


def in_words(casting: Casting) -> str:
    """What sending equal payloads once would save."""
    way = "downlink" if casting.direction == "down" else "between peers"
    if casting.distinct_bytes is None:
        return f"{way}: {size(casting.unicast_bytes)}; this record is too old to tell which payloads were equal"
    saved = 1 - casting.distinct_bytes / casting.unicast_bytes
    hint = f"sent to many at once it would be {100 * saved:.1f} % less" if saved > 0 else "no two were equal"
    return (
        f"{way}: {size(casting.unicast_bytes)} as unicast, {size(casting.distinct_bytes)} of distinct payloads "
        f"(equal ones of an instant once): {hint}"
    )


def _reached(target: Target) -> str:
    head = f"to an accuracy of {target.accuracy:g}, held for 3 evaluations: "
    point = target.point
    if point is None:
        return f"{head}not reached"
    return (
        f"{head}{size(point.payload_bytes)} of payload in {duration(round(point.simulated_s * 1e9))}, "
        f"round {point.round}"
    )


def _comparison(runs: Sequence[FinishedRun], costs: Sequence[Cost]) -> Table:
    columns = ["run", "method", "down", "up", "headers", "distinct", "useful"]
    with_target = costs[0].target is not None
    shown = table("bytes of payload", *columns, *["to target"] * with_target)
    shown.columns[1].justify = "left"
    for run, cost in zip(runs, costs, strict=True):
        ways = {flow.name: flow.payload_bytes for flow in cost.directions}
        up, down = (ways.get(way, 0) + ways.get("peer", 0) for way in ("up", "down"))
        distinct = [casting.distinct_bytes for casting in cost.castings]
        row = [run.directory.name, run.description.algorithm.name, size(down), size(up), size(cost.total.header_bytes)]
        row.append(size(distinct[0]) if distinct and distinct[0] is not None else "–")
        row.append(f"{100 * cost.useful_bytes:.1f} %" if cost.useful_bytes is not None else "–")
        if cost.target is not None:
            row.append(size(cost.target.point.payload_bytes) if cost.target.point else "not reached")
        shown.add_row(*row)
    shown.caption = "distinct: the downlink (among peers: all) with equal payloads of an instant once"
    shown.caption_justify = "left"
    return shown


def _as_json(run: FinishedRun, cost: Cost) -> dict[str, Any]:
    flows = {name: [flow._asdict() for flow in getattr(cost, name)] for name in _TABLES}
    found = asdict(cost) | flows
    found |= {"rounds": [one._asdict() for one in cost.rounds], "fates": [one._asdict() for one in cost.fates]}
    found |= {"castings": [one._asdict() for one in cost.castings], "total": cost.total._asdict()}
    if cost.target is not None:
        found["target"] = _target_as_json(cost.target)
    about = {"directory": str(run.directory), "algorithm": run.description.algorithm.name, "ended": run.ended}
    shares = {"useful_bytes_share": cost.useful_bytes, "useful_computing_share": cost.useful_computing}
    return about | found | shares


_TABLES = ("directions", "kinds", "links", "clients")


def _target_as_json(target: Target) -> dict[str, Any]:
    point = target.point
    found: dict[str, Any] = {"accuracy": target.accuracy, "is_reached": point is not None}
    if point is not None:
        found |= {"round": point.round, "simulated_s": point.simulated_s, "payload_bytes": point.payload_bytes}
    return found


def _print_csv(runs: Sequence[FinishedRun], costs: Sequence[Cost]) -> None:
    """One long table: a row for each direction, kind, link, client and round of each run."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["run", "by", *Flow._fields, "charged_bytes"])
    for run, cost in zip(runs, costs, strict=True):
        name = str(run.directory)
        for what in _TABLES:
            flows = getattr(cost, what)
            writer.writerows([name, what.removesuffix("s"), *flow, flow.charged_bytes] for flow in flows)
        writer.writerow([name, "total", *cost.total, cost.total.charged_bytes])
        rest = [""] * (len(Flow._fields) - 1)  # of a round only the sum is known
        writer.writerows([name, "round", one.round, *rest, one.charged_bytes] for one in cost.rounds)


def _unless_0(count: int) -> str:
    return size(count) if count else "–"
