"""What `pflsim explain --pictures` draws of a run without a server."""

from collections import Counter
from pathlib import Path

import numpy as np

from launch.finished import FIRST_ROUNDS, FinishedRun
from pflsim.errors import DescriptionError
from pflsim.record import timeline
from pflsim.record.classes import last_scores
from pflsim.record.consensus import consensus_over_rounds
from pflsim.record.consensus_plot import save_consensus_plot
from pflsim.record.graph import bytes_per_pair, save_edges_picture, save_graph_picture
from pflsim.record.timeline import Window
from pflsim.record.waiting import waits


def save_peer_pictures(run: FinishedRun, number: int | None, window: Window | None) -> list[Path]:
    """Timeline and waiting, the graph by accuracy and by waiting, bytes per edge, and the consensus distance."""
    paths, label = run.paths(), run.description.algorithm.title
    if window is None:
        window = _window_of_steps(run, *((1, FIRST_ROUNDS) if number is None else (number, number)))
    drawn = timeline.save_pictures(run.history, paths, window, run.directory, label)
    sent_bytes = bytes_per_pair(run.reader, run.names)
    drawn += save_edges_picture(run.directory / "edges", sent_bytes, run.names, f"{label}: sent in the whole run")
    course = consensus_over_rounds(run.reader)
    if course:
        drawn += save_consensus_plot(run.directory / "consensus", course, label)
    return drawn + _graphs(run, sent_bytes, label)


def _graphs(run: FinishedRun, sent_bytes: np.ndarray, label: str) -> list[Path]:
    """The graph twice: coloured by accuracy, and by how long neighbours waited for each."""
    topology = run.topology
    if topology is None:
        return []
    scores, waited_ns = last_scores(run.reader), Counter[str]()
    for wait in waits(run.history, run.is_virtual):
        waited_ns[wait.neighbour] += wait.waited_ns
    accuracy = np.full(len(run.names), np.nan)
    for client, (correct, total, _) in scores.items():
        accuracy[client] = 100 * correct / total if total else np.nan
    waited_s = np.array([waited_ns[name] / 1e9 for name in run.names])
    which = f"{topology.name} of round 1 (it changes)" if topology.changes else topology.name
    drawn: list[Path] = []
    for stem, values, what in (
        ("graph", accuracy, "accuracy in its last evaluation, %"),
        ("graph-waiting", waited_s, "neighbours waited for it, s"),
    ):
        title = f"{label} on {which}"
        drawn += save_graph_picture(run.directory / stem, topology.at(0), values, what, sent_bytes, run.names, title)
    return drawn


def _window_of_steps(run: FinishedRun, first: int, last: int) -> Window:
    """From when the first peer begins round `first` until the last ends round `last`."""
    steps = [step for own in run.history.steps.values() for step in own if first <= step.round <= last]
    if not steps:
        raise DescriptionError("--round", first, "no peer has ended it")
    return min(step.start_ns for step in steps), max(step.end_ns for step in steps)
