"""The pictures of time: what is drawn in them, and that equal records make equal files."""

from pathlib import Path

import pytest

from pflsim.record.critical_path import critical_paths
from pflsim.record.history import History
from pflsim.record.timeline import bars, save_pictures, timeline_figure, waiting_figure, window_of
from tests.launching import description
from tests.recorded import KINDS, SMALL, record_of
from tests.test_critical_path import ROUND, by_hand


def test_the_timeline_shows_what_lies_in_its_window_clipped_to_it() -> None:
    drawn = bars(by_hand(), (200, 900))
    assert drawn["c000"] == {"compute": [(200, 20)], "up": [(220, 80)]}
    assert drawn["c001"] == {"offline": [(200, 150)], "compute": [(350, 500)], "up": [(850, 50)]}
    assert drawn["server"] == {}


def test_a_window_of_rounds_reaches_from_the_first_start_to_the_last_end() -> None:
    assert window_of([ROUND], 1, 3) == (100, 1000)
    with pytest.raises(ValueError, match="no round from 2 to 3"):
        window_of([ROUND], 2, 3)


def test_the_waiting_picture_has_a_bar_per_client_parted_by_what_it_did() -> None:
    panel = waiting_figure(critical_paths(by_hand())).axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["c001"]
    widths = [bar.get_width() for bar in panel.patches]
    assert widths == [500, 170, 200]  # computing, messages, away; in ns


def test_the_server_stands_on_top_of_the_timeline() -> None:
    panel = timeline_figure(by_hand(), (100, 1000)).axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["server", "c000", "c001"]
    assert panel.get_ylim() == (2.5, -0.5)


def test_equal_records_make_equal_pictures(tmp_path: Path) -> None:
    with record_of(tmp_path / "record.db", description(**(SMALL | KINDS["availability"]))) as reader:
        history = History.read(reader)
    window = window_of(history.rounds, 1, 3)
    files = {}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        saved = save_pictures(history, critical_paths(history), window, tmp_path / name, "fedavg")
        files[name] = {path.name: path.read_bytes() for path in saved}
    assert files["one"] == files["two"]
    assert sorted(files["one"]) == ["timeline.png", "timeline.svg", "waiting.png", "waiting.svg"]
