"""Slow and fast clients apart: accuracy, participation and staleness by speed class, and how old answers were."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from pflsim.record.accuracy import Accuracy, headline, over_clients
from pflsim.record.database import Reader

AGE = "age"
"""The measure in which a server that does not wait for a whole cohort tells how many versions old an answer was."""


class SpeedClass(NamedTuple):
    """What became of the clients whose devices are of one class."""

    name: str
    clients: int
    visits: int  # how often one of them was asked to work
    accuracy: Accuracy | None  # of the last evaluation; None if there was none
    answers: int
    mean_age: float | None  # versions of the server's model; None in rounds, where no answer is old


def classes_of(reader: Reader) -> dict[str, str]:
    """The class of each client's device by its name, as far as the record has it."""
    if not reader.told("clients"):
        return {}
    return {str(name): str(kind) for name, kind in reader.query("SELECT name, device_class FROM clients")}


def ages(reader: Reader) -> dict[str, list[int]]:
    """By client, how old each of its answers was: versions that the server had made since it sent the WORK."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for actor, age in reader.query("SELECT actor, value FROM measures WHERE name = ? ORDER BY round, rowid", AGE):
        found[actor].append(int(age))
    return dict(found)


def age_histogram(reader: Reader) -> dict[int, int]:
    """How many answers were how many versions old, ascending; empty for a run in rounds."""
    counted = Counter(age for own in ages(reader).values() for age in own)
    return dict(sorted(counted.items()))


def by_class(reader: Reader, classes: Mapping[str, str]) -> list[SpeedClass]:
    """The clients summed up by class; `classes` are those of all clients by name, in the order of their numbers."""
    names = list(classes)
    scores, old = last_scores(reader), ages(reader)
    visits: Counter[str] = Counter()
    for (cohort,) in reader.query("SELECT cohort_json FROM rounds"):
        visits.update(names[client] for client in json.loads(cohort))
    answered = reader.query("SELECT sender, COUNT(*) FROM received WHERE kind = 'RESULT' GROUP BY sender")
    answers: dict[str, int] = dict(answered)
    found = []
    for kind in sorted(set(classes.values())):
        members = [number for number, name in enumerate(names) if classes[name] == kind]
        own = [age for number in members for age in old.get(names[number], [])]
        scored = [scores[number] for number in members if number in scores]
        found.append(
            SpeedClass(
                kind,
                len(members),
                sum(visits[names[number]] for number in members),
                over_clients(scored) if scored else None,
                sum(answers.get(names[number], 0) for number in members),
                sum(own) / len(own) if own else None,
            )
        )
    return found


def last_scores(reader: Reader) -> dict[int, tuple[int, int, float | None]]:
    """(correct, total, loss) of the headline model in each client's last evaluation on test, by client."""
    select = (
        "SELECT client, correct, total, loss FROM evaluations WHERE split = 'test' AND model = ? ORDER BY round, rowid"
    )
    return {client: (correct, total, loss) for client, correct, total, loss in reader.query(select, headline(reader))}


def first_scores(reader: Reader) -> dict[int, tuple[int, int, float | None]]:
    """The same of each client's first evaluation."""
    select = """
        SELECT client, correct, total, loss FROM evaluations WHERE split = 'test' AND model = ?
        ORDER BY round DESC, rowid DESC"""
    return {client: (correct, total, loss) for client, correct, total, loss in reader.query(select, headline(reader))}
