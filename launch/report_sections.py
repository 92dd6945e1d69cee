"""The sections of a run's report that show what happened: only those for which its record has something to show."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise

from launch.finished import FinishedRun
from launch.report_measures import labels_by_round, matched, measured
from launch.report_peers import peers
from launch.report_time import slowest_rounds, timeline, waiting
from launch.report_traffic import communication
from pflsim.record.accuracy import over_rounds
from pflsim.record.classes import first_scores, last_scores
from pflsim.record.participation import participation, visits
from pflsim.report import courses, heat, holdings
from pflsim.report.page import Grid, Part, Section, Text

_REFERENCES = ("local", "fedavg")
"""With whom each client's accuracy is compared, the first of these that ran beside."""


def sections(runs: Mapping[str, FinishedRun], own: str) -> Iterator[Section]:
    """Those of the run called `own`; the others stand beside it where accuracies are compared."""
    run = runs[own]
    yield from _accuracy(runs, own)
    yield from _clients(runs, own)
    yield from _data(run)
    yield from timeline(run)
    yield from waiting(run)
    yield from slowest_rounds(run)
    yield from communication(run)
    if run.history.has_peers:
        yield from peers(run)
    else:
        yield from _participation(run)
    yield from _clusters(run)
    yield from measured(run)


def _accuracy(runs: Mapping[str, FinishedRun], own: str) -> Iterator[Section]:
    found = courses.courses({label: over_rounds(run.reader) for label, run in runs.items()}, own)
    parts: list[Part] = [found] if found else [Text("Nobody was evaluated, so there is no accuracy to show.")]
    lead = "Of each method's headline model: what is evaluated takes no simulated time and costs no bytes."
    yield Section("Accuracy", parts, lead if found else "")


def _clients(runs: Mapping[str, FinishedRun], own: str) -> Iterator[Section]:
    last = {label: _fractions(last_scores(run.reader)) for label, run in runs.items()}
    last = {label: found for label, found in last.items() if found}
    if own not in last:
        return
    names = runs[own].names
    first = _fractions(first_scores(runs[own].reader))
    is_new = len(over_rounds(runs[own].reader)) > 1
    pictures = [courses.distribution(last, first if is_new else {}, own, names)]
    other = next((label for label in _REFERENCES if label in last and label != own), None)
    if other is not None:
        pictures.append(courses.gains(last[own], last[other], own, other, names))
    parts: list[Part] = (
        [*pictures]
        if len(pictures) == 1
        else [
            Grid(pictures, f"On the left all clients in order; on the right each client's gain. {pictures[1].caption}")
        ]
    )
    yield Section("Clients", parts, "How each client fares on its own test data in its last evaluation.")


def _fractions(scores: Mapping[int, tuple[int, int, float | None]]) -> dict[int, float]:
    return {client: correct / total for client, (correct, total, _) in sorted(scores.items()) if total}


def _data(run: FinishedRun) -> Iterator[Section]:
    told = run.reader.told("clients")
    if not told:
        yield Section("Data", [Text("This record was made before clients' data were recorded.")])
        return
    rows = run.reader.rows("clients")
    if not rows:
        return
    names = [row["name"] for row in rows]
    parts: list[Part] = []
    if "label_counts_json" in told:
        labels, counts = ([json.loads(row[key]) for row in rows] for key in ("labels_json", "label_counts_json"))
        found = holdings.partition(names, labels, counts)
        parts += [found] if found else []
    else:
        parts.append(Text("This record was made before the samples of each class were counted."))
    training, test = ([row[key] for row in rows] for key in ("training_samples", "test_samples"))
    if len(rows) > 1 and (min(training) < max(training) or not parts):
        parts.append(holdings.sizes(names, training, test))
    each = f"{min(training)}" if min(training) == max(training) else f"{min(training)} to {max(training)}"
    lead = f"{len(rows)} client{'s' * (len(rows) > 1)} with {each} training samples, {sum(training):,} together."
    yield Section("Data", parts, lead)


def _participation(run: FinishedRun) -> Iterator[Section]:
    visited, rounds = visits(run.reader), len(run.history.rounds)
    if not visited:
        return
    counts, names = participation(run.reader).tolist(), run.names
    spread = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    lead = f"Each client was asked to work {spread} times in {rounds} rounds."
    if len(set(visited)) == len(visited) == rounds * len(names):
        yield Section("Participation", [Text("Everybody worked in every round.")], lead)
        return
    parts = [heat.participation(visited, names, rounds), heat.visit_counts(counts, names)]
    yield Section("Participation", parts, lead)


def _clusters(run: FinishedRun) -> Iterator[Section]:
    labels = labels_by_round(run.reader, len(run.names))
    if not labels:
        return
    told, said = labels, "clients changed their cluster"
    labels = matched(told)
    if 2 * _moves(labels) < _moves(told):
        said = "the method numbers them anew in each round; matched by the members in common, clients changed theirs"
    else:
        labels = told
    counts = {number: len(set(row) - {heat.NONE}) for number, row in labels.items()}
    last = max(counts)
    parts: list[Part] = [heat.clusters(labels, run.names)]
    if len(set(counts.values())) > 1:
        parts.append(heat.cluster_count(counts))
    ends = f"{counts[last]} cluster{'s' * (counts[last] != 1)} after round {last}"
    lead = f"{ends}; {said} {_moves(labels)} times in all."
    yield Section("Clusters", parts, lead)


def _moves(labels: Mapping[int, list[int]]) -> int:
    rows = [row for _, row in sorted(labels.items())]
    return sum(
        before != after and before != heat.NONE
        for earlier, later in pairwise(rows)
        for before, after in zip(earlier, later, strict=True)
    )
