"""What a run of peers as processes leaves, and what the command line tells of it."""

import json
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner

from launch.cli import pflsim
from launch.comparison import run_all
from pflsim.errors import DescriptionError
from pflsim.record.report import comparison_table
from pflsim.record.result import Result
from tests.launching import description
from tests.recorded import AMONG, PEERS, record_of

TABLES = description(**(AMONG | PEERS["sync"]), record__plot=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of six peers on a ring."""
    folder = tmp_path_factory.mktemp("peers") / "run"
    run_all(TABLES, folder, quiet=True)
    return folder


def said(*arguments: str) -> str:
    done = CliRunner().invoke(pflsim, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


def test_a_run_of_peers_violates_nothing_and_verify_says_so(finished: Path) -> None:
    assert Result.open(finished).summary["warnings"] == []
    output = said("verify", str(finished))
    assert output.count("holds  ") == 9 and "VIOLATED" not in output
    assert "no model passes the coordinator" in output and "every PAIR is answered once" in output


def test_the_summary_has_the_graph_the_traffic_between_peers_and_who_was_waited_for(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    assert [summary["graph"][fact] for fact in ("name", "nodes", "edges", "largest_degree")] == ["ring", 6, 6, 2]
    assert summary["graph"]["lambda_max"] == 4.0 and summary["graph"]["spectral_gap"] == pytest.approx(1 / 3)
    assert summary["traffic"]["messages"] == 6 * 2 * 4
    assert (summary["rounds"], summary["most_rounds"]) == (4, 4)
    assert summary["waited_for"]["waited_s"] > 0 and summary["consensus"]["is_exact"]


def test_the_table_shows_what_peers_sent_in_both_columns(finished: Path) -> None:
    summary = Result.open(finished).summary
    table = comparison_table([summary | {"traffic": summary["traffic"] | {"payload_bytes_peer": 3_100_000}}])
    cells = {str(column.header): next(iter(column.cells)) for column in table.columns}
    assert (cells["MB\nup"], cells["MB\ndown"]) == ("3.10", "3.10")


def test_explain_tells_of_peers_alone(finished: Path) -> None:
    output = said("explain", str(finished), "--target", "0.999")
    for part in (
        "graph: ring: 6 nodes, 6 edges",
        "6 peers did 4 steps each",
        "of c00",
        "how they spent the time",
        "waited for",
        "by speed class",
        "how old the models were, s",
        "consensus distance: ",
        "at the end (exactly)",
        "held for 3 evaluations: ",
    ):
        assert part in output
    assert "server" not in output


def test_explain_tells_every_part_of_the_slowest_step_of_a_round(finished: Path) -> None:
    output = said("explain", str(finished), "--round", "2")
    assert output.startswith("6 peers did round 2; the slowest:\nstep 2 of c00")
    assert "latency" in output and "mix" in output
    refused = CliRunner().invoke(pflsim, ["explain", str(finished), "--round", "9"])
    assert "has steps of the rounds 1 to 4" in str(refused.exception)


def test_explain_draws_the_graph_the_edges_and_the_consensus(finished: Path) -> None:
    said("explain", str(finished), "--pictures")
    for stem in ("timeline", "waiting", "graph", "graph-waiting", "edges", "consensus"):
        assert (finished / f"{stem}.png").stat().st_size > 5000 and (finished / f"{stem}.svg").exists()
    assert "accuracy in its last evaluation" in (finished / "graph.svg").read_text()
    assert "all have done a round" in (finished / "timeline.svg").read_text()
    assert "all peers together waited for it" in (finished / "waiting.svg").read_text()


def test_retiming_peers_is_refused_with_the_reason(finished: Path) -> None:
    done = CliRunner().invoke(pflsim, ["retime", str(finished)])
    assert isinstance(done.exception, DescriptionError)
    assert "it repeats the rounds of a server, and peers have none" in str(done.exception)


def test_a_changing_graph_is_explained_by_that_of_round_1_and_peers_may_end_after_different_rounds(
    tmp_path: Path,
) -> None:
    settings = {"topology": {"name": "matching"}, "schedule": {"kind": "asynchronous"}, "run__rounds": 100,
                "run__stop": {"simulated_s": 0.1}, "record__plot": False}  # fmt: skip
    run_all(description(**(AMONG | {"algorithm": {"name": "dfedu"}} | settings)), tmp_path / "run", quiet=True)
    summary = Result.open(tmp_path / "run").summary
    assert summary["rounds"] < summary["most_rounds"] and summary["warnings"] == []
    assert summary["accuracy"]["clients"] == 6, "each counts with its own last evaluation"
    assert summary["rounds"] < summary["accuracy"]["round"] < summary["most_rounds"], "the mean over peers"
    output = " ".join(said("explain", str(tmp_path / "run"), "--pictures").split())
    assert "graph: matching, round 1, as it changes: 6 nodes" in output
    assert f"6 peers did {summary['rounds']} to {summary['most_rounds']} steps each" in output
    assert "matching of round 1 (it changes)" in (tmp_path / "run" / "graph.svg").read_text()


def test_a_description_of_peers_gives_the_same_digests_in_two_placements(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(tomli_w.dumps(TABLES))
    assert said("verify", str(tmp_path / "run.toml"), "--set", "run.rounds=2").count("equal") == 2


@pytest.mark.parametrize(
    ("schedule", "models"),
    [
        ({"kind": "sync"}, "12 models, 2 of each peer"),
        ({"kind": "asynchronous"}, "12 models, 2 of each peer"),
        ({"kind": "push"}, "6 models, 1 of each peer"),
        ({"kind": "epidemic", "receivers": 1}, "6 models, 1 of each peer"),
        ({"kind": "pairs"}, "12 models, 2 of each peer"),
    ],
)
def test_check_tells_what_peers_send_in_a_round(schedule: dict[str, object], models: str, tmp_path: Path) -> None:
    tables = description(**(AMONG | {"algorithm": {"name": "dpsgd"}, "schedule": schedule}))
    (tmp_path / "run.toml").write_text(tomli_w.dumps(tables))
    output = said("check", str(tmp_path / "run.toml"))
    assert models in output
    assert "8: host, coordinator, 6 of peers" in output and "ring: 6 nodes" in output


def test_what_check_tells_of_a_round_is_what_a_run_sends(tmp_path: Path) -> None:
    tables = description(**(AMONG | PEERS["epidemic"] | {"run__rounds": 1}))
    with record_of(tmp_path / "record.db", tables) as reader:
        assert len(reader.rows("sent", channel="data")) == 6 * 2
