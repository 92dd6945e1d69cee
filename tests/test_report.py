"""The summary, the comparison, the plot, and the result that a study reads back."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pflsim.record.accuracy import over_clients, over_rounds
from pflsim.record.critical_path import blamed, critical_paths
from pflsim.record.database import Reader, Record
from pflsim.record.history import History
from pflsim.record.plot import save_accuracy_plot
from pflsim.record.report import comparison_table, summarise, three_digits, write_summary
from pflsim.record.result import Result
from pflsim.record.waiting import WaitedFor, most_waited_for

SECOND_NS = 10**9


def evaluation(
    round_: int, client: int, correct: int, total: int = 10, model: str = "personalised", split: str = "test"
) -> tuple[Any, ...]:
    """One client's evaluation with a loss of 0.5, at as many simulated seconds as rounds."""
    return ("evaluations", round_, round_ * SECOND_NS, client, model, split, correct, total, 0.5)


def recorded(path: Path, *facts: tuple[Any, ...]) -> Reader:
    """A reader of a record that holds these facts."""
    with Record(path) as record:
        record.write(facts)
    return Reader(path)


def test_accuracy_over_clients_is_weighted_mean_spread_and_tails() -> None:
    accuracy = over_clients([(10, 10, 0.0), (15, 30, 1.0), (0, 0, None)])
    assert accuracy.weighted == 25 / 40
    assert accuracy.mean == 0.75 and accuracy.std == 0.25
    assert (accuracy.worst_decile, accuracy.best_decile) == (0.5, 1.0)
    assert accuracy.binomial_error == math.sqrt(25 / 40 * 15 / 40 / 40)
    assert accuracy.loss == 0.75
    assert (accuracy.clients, accuracy.clients_without_samples) == (2, 1)


def test_the_worst_decile_is_the_mean_of_the_worst_tenth_of_clients() -> None:
    accuracy = over_clients([(correct, 100, 0.0) for correct in range(20)])
    assert accuracy.worst_decile == (0.00 + 0.01) / 2
    assert accuracy.best_decile == (0.18 + 0.19) / 2


def test_nobody_with_a_sample_gives_nan_instead_of_an_error() -> None:
    assert math.isnan(over_clients([(0, 0, None)]).weighted)


def test_the_summary_reports_the_last_evaluation_not_the_best(tmp_path: Path) -> None:
    facts = [evaluation(round_, client, correct) for round_, correct in ((1, 9), (2, 6)) for client in (0, 1)]
    with recorded(tmp_path / "record.db", *facts) as reader:
        accuracy = summarise(reader, {})["accuracy"]
    assert accuracy["weighted"] == accuracy["mean"] == 0.6
    assert (accuracy["headline"], accuracy["round"]) == ("personalised", 2)
    assert accuracy["validation_chosen_weighted"] is None and accuracy["global_weighted"] is None


def test_the_first_model_that_a_client_states_is_the_headline(tmp_path: Path) -> None:
    facts = [
        fact
        for client in (1, 0)
        for fact in (
            evaluation(1, client, 8, model="theta"),
            evaluation(1, client, 5, model="global"),
            evaluation(1, client, 4, model="aaa"),
        )
    ]
    with recorded(tmp_path / "record.db", *facts) as reader:
        accuracy = summarise(reader, {})["accuracy"]
    assert (accuracy["headline"], accuracy["weighted"], accuracy["global_weighted"]) == ("theta", 0.8, 0.5)
    assert accuracy["models"] == {"aaa": 0.4, "global": 0.5}


def test_validation_chooses_the_first_of_its_best_rounds_and_its_test_accuracy_is_told(
    tmp_path: Path,
) -> None:
    facts = [evaluation(round_, 0, test) for round_, test in ((1, 5), (2, 7), (3, 9))]
    facts += [evaluation(round_, 0, right, split="validation") for round_, right in ((1, 6), (2, 8), (3, 8))]
    with recorded(tmp_path / "record.db", *facts) as reader:
        accuracy = summarise(reader, {})["accuracy"]
    assert (accuracy["validation_chosen_round"], accuracy["validation_chosen_weighted"]) == (2, 0.7)
    assert accuracy["weighted"] == 0.9


def test_a_summary_has_every_key_of_the_design_even_without_a_fact(tmp_path: Path) -> None:
    with recorded(tmp_path / "record.db") as reader:
        summary = summarise(reader, {"status": "failed", "name": "start-here", "time": {"wall_s": float("inf")}})
    assert list(summary) == [
        *("status", "algorithm", "dataset", "model", "clients", "rounds", "seed", "mode", "accuracy", "time"),
        *("traffic", "waited_for", "memory", "digest", "trace_digest", "name", "warnings"),
    ]
    assert summary["status"] == "failed" and summary["name"] == "start-here"
    assert summary["time"] == {"wall_s": None}
    assert summary["accuracy"]["weighted"] is None and summary["waited_for"] is None
    assert summary["traffic"]["messages"] == 0 and summary["traffic"]["ends_agree"] is True


def test_numbers_that_are_not_finite_become_null_in_the_file(tmp_path: Path) -> None:
    facts = [("evaluations", 1, 0, 0, "m", "test", 0, 0, float("nan"))]
    with recorded(tmp_path / "record.db", *facts) as reader:
        write_summary(tmp_path / "summary.json", summarise(reader, {"digest": "ab"}))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["accuracy"]["weighted"] is None and summary["digest"] == "ab"
    assert summary["accuracy"]["clients_without_samples"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record.db", "summary.json"]


def answers(round_: int, start_s: float, arrivals_s: dict[str, float], end_s: float) -> list[tuple[Any, ...]]:
    """A round, and the answers that reached the server at these seconds."""
    facts: list[tuple[Any, ...]] = [
        ("rounds", round_, int(start_s * SECOND_NS), int(end_s * SECOND_NS), 0.1, "[]", len(arrivals_s), 0, 0)
    ]
    for client, arrival_s in arrivals_s.items():
        message = (client, "server", "RESULT", "data", round_)
        facts.append(("sent", *message, round_, 400, 60, 0, int(start_s * SECOND_NS)))
        facts.append(("received", *message, 400, 60, 0, int(arrival_s * SECOND_NS)))
    return facts


def test_the_client_most_waited_for_cost_the_most_seconds_not_the_most_rounds(tmp_path: Path) -> None:
    facts = answers(1, 0, {"c000": 1, "c001": 1.25, "c002": 5}, 5)
    facts += answers(2, 5, {"c000": 6, "c001": 6.25}, 7)
    facts += answers(3, 7, {"c000": 8, "c001": 8.5}, 9)
    with recorded(tmp_path / "record.db", *facts) as reader:
        waited_for = most_waited_for(reader)
    assert waited_for is not None
    assert (waited_for.actor, waited_for.waited_s, waited_for.rounds_closed) == ("c002", 3.75, 1)


def test_equally_late_clients_are_named_by_the_lowest_id_and_counted(tmp_path: Path) -> None:
    facts = answers(1, 0, {"c000": 1, "c001": 1, "c002": 3, "c003": 3}, 4)
    facts += answers(2, 4, {"c000": 5, "c001": 5, "c002": 7, "c003": 7}, 8)
    with recorded(tmp_path / "record.db", *facts) as reader:
        waited_for = most_waited_for(reader)
        shown = rendered([summary("fedu", 0.5, waited_for=summarise(reader, {})["waited_for"])], 80)
    assert waited_for == WaitedFor("c002", waited_s=4.0, rounds_closed=2, others_as_late=1)
    assert "c002 +1" in shown


def test_of_clients_that_are_as_late_to_1_percent_the_lowest_id_is_named_as_in_the_critical_path(
    tmp_path: Path,
) -> None:
    facts = answers(1, 0, {"c000": 1, "c001": 1, "c002": 3, "c003": 3}, 3)
    facts += answers(2, 4, {"c000": 5, "c001": 5, "c002": 7, "c003": 7.001}, 7.001)
    facts += answers(3, 8, {"c000": 9, "c001": 9, "c002": 11, "c003": 11}, 11)
    with recorded(tmp_path / "record.db", *facts) as reader:
        waited_for, history = most_waited_for(reader), History.read(reader)
    assert waited_for is not None and (waited_for.actor, waited_for.others_as_late) == ("c002", 1)
    first = blamed(critical_paths(history))[0]
    assert first.actor == "c002" and first.rounds == 2


def test_an_answer_after_its_rounds_end_was_not_waited_for(tmp_path: Path) -> None:
    facts = answers(1, 0, {"c000": 1, "c001": 1.5, "c002": 60}, 2)
    with recorded(tmp_path / "record.db", *facts) as reader:
        waited_for = most_waited_for(reader)
    assert waited_for is not None and (waited_for.actor, waited_for.waited_s) == ("c001", 0.5)


def test_nobody_is_waited_for_when_all_answer_at_once(tmp_path: Path) -> None:
    with recorded(tmp_path / "record.db", *answers(1, 0, {"c000": 1, "c001": 1}, 1)) as reader:
        assert most_waited_for(reader) is None


def test_a_curve_counts_the_bytes_before_an_evaluation_and_not_the_next_rounds(tmp_path: Path) -> None:
    facts = [evaluation(round_, 0, 5 + round_) for round_ in (0, 1, 2)]
    facts += [
        (
            "sent",
            "server",
            "c000",
            "WORK",
            "data",
            round_,
            round_,
            100 * round_,
            60,
            0,
            (round_ - 1) * SECOND_NS,
        )
        for round_ in (1, 2, 3)
    ]
    facts.append(("sent", "server", "c000", "EVAL", "evaluation", 0, 1, 10_000, 60, 0, 1))
    with recorded(tmp_path / "record.db", *facts) as reader:
        curve = over_rounds(reader)
    assert [(point.round, point.simulated_s, point.payload_bytes) for point in curve] == [
        (0, 0.0, 0),
        (1, 1.0, 100),
        (2, 2.0, 300),
    ]
    assert [point.accuracy.weighted for point in curve] == [0.5, 0.6, 0.7]


def summary(algorithm: str, weighted: float | None, **other: Any) -> dict[str, Any]:
    """A summary as the table needs it."""
    accuracy = {
        "weighted": weighted,
        "binomial_error": 0.012,
        "mean": weighted,
        "std": 0.1234,
        "worst_decile": 0.5,
    }
    return {
        "status": "done",
        "algorithm": algorithm,
        "accuracy": accuracy if weighted is not None else {},
        "time": {"simulated_s": 12345.6, "wall_s": 12.34},
        "traffic": {"payload_bytes_up": 3_140_000_000, "payload_bytes_down": 31_400_000, "messages": 24000},
        "waited_for": {"actor": "c017", "waited_s": 1.0, "rounds_closed": 3},
    } | other


def rendered(summaries: list[dict[str, Any]], width: int, **console: Any) -> str:
    """What the table looks like on a terminal, or elsewhere, of so many columns."""
    output = io.StringIO()
    Console(file=output, width=width, **console).print(comparison_table(summaries, width))
    return output.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_a_comparison_fits_its_width_with_every_number_whole(width: int) -> None:
    text = rendered([summary("local", 0.9234, waited_for=None), summary("scaffold", 1.0)], width)
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= width
    assert "…" not in text and "\x1b" not in text
    local, scaffold = (" ".join(line.split()) for line in lines[-2:])
    assert local == "local 92.3 ± 1.2 92.3 ± 12.3 50.0 12346 12.3 3140 31.4 24000 –"
    assert scaffold == "scaffold 100.0 ± 1.2 100.0 ± 12.3 50.0 12346 12.3 3140 31.4 24000 c017"


def test_a_failed_run_has_its_row_too() -> None:
    assert "(failed)" in rendered([summary("fedu", None, status="failed")], 80)


def test_a_method_of_ones_own_is_named_without_its_module() -> None:
    assert rendered([summary("my_package.method:FedAvgM", 0.5)], 80).splitlines()[-1].startswith("FedAvgM ")


def test_a_comparison_is_coloured_only_on_a_terminal() -> None:
    assert "\x1b[1m" in rendered([summary("fedu", 0.5)], 80, force_terminal=True)
    assert "\x1b" not in rendered([summary("fedu", 0.5)], 80, force_terminal=False)


def test_numbers_keep_three_digits() -> None:
    values = [0, 0.004, 1.234, 9.996, 12.34, 99.96, 123.4, 12345.6, None]
    assert [three_digits(value) for value in values] == [
        *("0", "0.00", "1.23", "10.0", "12.3", "100", "123", "12346", "–")
    ]


def test_the_plot_overlays_runs_and_is_the_same_file_again(tmp_path: Path) -> None:
    silent = [evaluation(round_, client, 5 + round_) for round_ in range(4) for client in range(3)]
    talking = [
        ("sent", "server", "c000", "WORK", "data", round_, round_, 40_000, 60, 0, round_ * SECOND_NS - 1)
        for round_ in range(1, 4)
    ]
    recorded(tmp_path / "a.db", *silent).close()
    recorded(tmp_path / "b.db", *silent, *talking).close()
    recorded(tmp_path / "c.db").close()  # ended before its first evaluation
    records = {"Local": tmp_path / "a.db", "FedAvg": tmp_path / "b.db", "failed": tmp_path / "c.db"}
    png, svg = save_accuracy_plot(records, tmp_path / "accuracy", "mlr on digits")
    first = svg.read_bytes()
    assert png.read_bytes().startswith(b"\x89PNG")
    for text in (b"Local", b"FedAvg", b"payload sent, kB", b"simulated time, s", b"test accuracy, %", b"mlr on digits"):
        assert text in first
    save_accuracy_plot(records, tmp_path / "accuracy", "mlr on digits")
    assert svg.read_bytes() == first


def test_a_result_is_read_back_from_its_folder(tmp_path: Path) -> None:
    with recorded(tmp_path / "record.db", evaluation(1, 0, 8), evaluation(1, 1, 6)) as reader:
        write_summary(tmp_path / "summary.json", summarise(reader, {"status": "done", "seed": 7}))
    result = Result.open(tmp_path)
    assert result.summary["seed"] == 7
    assert (result.accuracy, result.mean_accuracy, result.worst_decile) == (0.7, 0.7, 0.6)
    assert result.global_accuracy is None
    assert [row["correct"] for row in result.rows("evaluations", client=1)] == [6]
    assert result.arrays("evaluations")["correct"].tolist() == [8, 6]
    assert [point.round for point in result.curve()] == [1]
    assert result.ledger().agrees


def test_a_folder_without_a_summary_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no run was here"):
        Result.open(tmp_path)
    recorded(tmp_path / "record.db").close()
    with pytest.raises(FileNotFoundError, match="the run has not ended, or failed"):
        Result.open(tmp_path)


def test_work_that_really_took_longer_than_its_model_is_told(tmp_path: Path) -> None:
    facts = [("measures", 1, "c001", "overrun_s", 0.5), ("measures", 2, "c000", "overrun_s", 0.25)]
    with Record(tmp_path / "record.db") as record:
        record.write(facts)
    with Reader(tmp_path / "record.db") as reader:
        (warning,) = summarise(reader, {"warnings": []})["warnings"]
    assert warning.startswith(
        "2 pieces of work really took longer than modelled, by 0.75 s in all (most at c001, 0.50 s)"
    )


def test_the_course_among_peers_takes_everybodys_last_evaluation_by_a_moment(tmp_path: Path) -> None:
    """c001 is three times slower than c000; nobody is left out, and nobody's later evaluation counts earlier."""
    facts: list[tuple[Any, ...]] = [("events", "coordinator", "began", "2 peers", 0, 0.0)]
    for client, round_, now_ns, correct in ((0, 1, 10, 1), (0, 2, 20, 2), (0, 3, 30, 3), (1, 1, 30, 4), (0, 4, 40, 5)):
        facts.append(("evaluations", round_, now_ns, client, "global", "test", correct, 10, 0.5))
        facts.append(("measures", round_, f"c{client:03d}", "gradients", 7))
    with Record(tmp_path / "record.db") as record:
        record.write(facts)
    with Reader(tmp_path / "record.db") as reader:
        found = [
            (point.round, round(1e9 * point.simulated_s), point.accuracy.weighted, point.gradients)
            for point in over_rounds(reader)
        ]
    assert found == [(2, 30, 7 / 20, 4 * 7), (2, 40, 9 / 20, 5 * 7)]
