"""Who took part: counted from the record, and drawn."""

import json
from pathlib import Path
from typing import Any

from pflsim.record.database import Reader, Record
from pflsim.record.participation import participation, save_participation_plot, visits


def record(path: Path, cohorts: list[list[int]], clients: int) -> Path:
    facts: list[tuple[Any, ...]] = [("events", f"c{client:03d}", "joined", "", 0, 0.0) for client in range(clients)]
    facts += [
        ("rounds", number + 1, number, number + 1, 0.0, json.dumps(cohort), len(cohort), 0, 0)
        for number, cohort in enumerate(cohorts)
    ]
    with Record(path) as written:
        written.write(facts)
    return path


def test_visits_are_counted_for_everybody_who_joined(tmp_path: Path) -> None:
    with Reader(record(tmp_path / "record.db", [[0, 2], [2], [], [0, 1, 2]], 5)) as reader:
        assert participation(reader).tolist() == [2, 1, 3, 0, 0]
        assert visits(reader) == [(1, 0), (1, 2), (2, 2), (4, 0), (4, 1), (4, 2)]


def test_a_record_without_rounds_or_joins_has_nobody_in_it(tmp_path: Path) -> None:
    with Reader(record(tmp_path / "record.db", [], 0)) as reader:
        assert participation(reader).tolist() == []
    with Reader(record(tmp_path / "lost.db", [[3]], 0)) as reader:
        assert participation(reader).tolist() == [0, 0, 0, 1]


def test_equal_records_make_equal_pictures_that_say_how_often_each_was_visited(tmp_path: Path) -> None:
    cyclic = record(tmp_path / "cyclic.db", [[0, 1], [2, 3]] * 3, 4)
    chance = record(tmp_path / "chance.db", [[0, 1], [0, 3]] * 3, 4)
    runs = {"chance": chance, "cyclic": cyclic, "empty": record(tmp_path / "empty.db", [], 2)}
    png, svg = save_participation_plot(runs, tmp_path / "first")
    assert png.stat().st_size > 1000
    drawn = svg.read_text()
    assert all(said in drawn for said in ("cyclic", "chance", "empty", "3 each", "0 to 6 each", "0 each"))
    assert drawn == save_participation_plot(runs, tmp_path / "second")[1].read_text()
