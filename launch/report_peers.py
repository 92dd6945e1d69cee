"""The section of a run's report about peers: their graph, what passed its edges, and how far their models differ."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from launch.finished import FinishedRun
from pflsim.record.classes import last_scores
from pflsim.record.consensus import consensus_over_rounds, last_consensus, staleness_per_edge
from pflsim.record.graph import bytes_per_pair
from pflsim.record.waiting import waits
from pflsim.report import network
from pflsim.report.page import Grid, Part, Section, Text
from pflsim.report.picture import Picture


def peers(run: FinishedRun) -> Iterator[Section]:
    """The graph, and the consensus distance."""
    sent_bytes = bytes_per_pair(run.reader, run.names)
    parts: list[Part] = [*_graphs(run, sent_bytes)]
    heats = [network.bytes_heat(sent_bytes, run.names), _ages(run)]
    shown = [picture for picture in heats if picture is not None]
    parts += (
        [
            Grid(
                shown,
                "Left: what each peer sent to each other one. Right: how old the models were that were used."
                if len(shown) == 2
                else "",
            )
        ]
        if shown
        else []
    )
    if parts:
        yield Section("Graph", parts, _which(run))
    course, last = consensus_over_rounds(run.reader), last_consensus(run.reader)
    if course:
        lead = "How far the peers' models are from their mean."
        if last is not None and not last.is_exact:
            lead += f" An estimate, with a relative standard error of at most {100 * last.relative_error:.1f} %."
        yield Section("Consensus", [network.consensus(course)], lead)


def _which(run: FinishedRun) -> str:
    topology = run.topology
    if topology is None:
        return "The graph itself is not known: its file is gone, or the record is older than this page."
    return f"{topology.name}, as in round 1: it changes." if topology.changes else f"{topology.name}."


def _graphs(run: FinishedRun, sent_bytes: np.ndarray) -> Iterator[Grid | Text]:
    topology = run.topology
    if topology is None:
        return
    accuracy = np.full(len(run.names), np.nan)
    for client, (correct, total, _) in last_scores(run.reader).items():
        accuracy[client] = 100 * correct / total if total else np.nan
    waited_ns: Counter[str] = Counter()
    for wait in waits(run.history, run.is_virtual):
        waited_ns[wait.neighbour] += wait.waited_ns
    waited_s = np.array([waited_ns[name] / 1e9 for name in run.names])
    found: list[Picture] = []
    for values, what, unit in ((accuracy, "accuracy", "%"), (waited_s, "neighbours waited", "s")):
        if np.isfinite(values).any() and (what == "accuracy" or values.any()):
            found.append(network.graph(topology.at(0), values, what, unit, sent_bytes, run.names))
    if found:
        told = ["Left: coloured by accuracy. Right: by how long neighbours waited for it."] if len(found) == 2 else []
        yield Grid(found, " ".join([*told, found[0].caption]).strip())


def _ages(run: FinishedRun) -> Picture | None:
    """How old what each peer used of each neighbour was, in the mean."""
    number = {name: position for position, name in enumerate(run.names)}
    mean_s = np.full((len(number), len(number)), np.nan)
    for one in staleness_per_edge(run.reader):
        if one.peer in number and one.neighbour in number:
            mean_s[number[one.peer], number[one.neighbour]] = one.mean_age_s
    return network.edge_heat(mean_s, run.names, "mean age", "s", ("peer", "neighbour"))
