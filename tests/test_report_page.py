"""`pflsim report`: one page of a run, whatever kind of run it was and however it ended."""

import base64
import gzip
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest
import tomli_w
from click.testing import CliRunner

from launch.cli import pflsim
from launch.comparison import run_all
from launch.report import write_report
from pflsim.errors import DescriptionError
from pflsim.record.database import Record
from pflsim.spec import validate
from pflsim.study import Study
from tests.browsing import TIMEOUT_S, chromium, opened
from tests.launching import description
from tests.recorded import AMONG, KINDS, PEERS, SMALL, run_into

CLUSTERED = {"algorithm": {"name": "ifca", "K": 3}, "run__rounds": 6}
VIEWS = [(1280, "light"), (400, "dark")]


def report_of(folder: Path, **settings: Any) -> str:
    """The page of a run of these settings, one event at a time."""
    run_into(folder, description(**settings))
    return write_report(folder).read_text()


def figures(html: str) -> list[dict[str, Any]]:
    (found,) = re.findall(r'<script type="text/plain" id="pictures">([^<]*)</script>', html)
    return list(json.loads(gzip.decompress(base64.b64decode(found))))


def titles(html: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", html)


def section(html: str, title: str) -> str:
    return html.split(f"<h2>{title}</h2>")[1].split("</section>")[0]


def assert_drawn_alike(browser: Any, page: Path, pictures: int) -> None:
    """In light and dark, on a desk and in a hand: every picture is drawn, without a complaint or a request."""
    for width, scheme in VIEWS:
        with opened(browser, page, width=width, scheme=scheme) as seen:
            assert (seen.errors, seen.empty_pictures(), seen.pictures()) == ([], [], pictures)
            assert [url for url in seen.requests if not url.startswith("data:")] == [page.resolve().as_uri()]
            assert seen.is_within_its_width()


@pytest.mark.parametrize("kind", ["slow links", "availability", "fedbuff", "cancel", "fresh losses"])
def test_every_kind_of_run_with_a_server_has_a_page_that_plotly_accepts(kind: str, tmp_path: Path) -> None:
    html = report_of(tmp_path / "run", **(SMALL | KINDS[kind]))
    assert titles(html) == [
        "Results",
        "Accuracy",
        "Clients",
        "Data",
        "Timeline",
        "Waiting and idling",
        "Slowest rounds",
        "Communication",
        "Participation",
        "What was run",
    ]
    for figure in figures(html):
        plotly.graph_objects.Figure(figure)


@pytest.mark.parametrize("kind", ["deadline", "pairs", "leaving", "faults", "changing graph"])
def test_every_kind_of_run_among_peers_has_a_page_that_plotly_accepts(kind: str, tmp_path: Path) -> None:
    html = report_of(tmp_path / "run", **(AMONG | PEERS[kind]))
    assert [title for title in titles(html) if title in ("Graph", "Consensus", "Participation")] == [
        "Graph",
        "Consensus",
    ]
    for figure in figures(html):
        plotly.graph_objects.Figure(figure)


def test_clusters_are_shown_by_client_and_round(tmp_path: Path) -> None:
    html = report_of(tmp_path / "run", **(SMALL | CLUSTERED))
    (heat,) = [figure for figure in figures(html) if figure["data"][0]["type"] == "heatmap"]
    (trace,) = heat["data"]
    assert trace["x"] == [1, 2, 3, 4, 5, 6] and len(trace["z"]) == 6
    last = [row[-1] for row in trace["z"]]
    assert last == sorted(last) and set(trace["y"]) == {f"c{client:03d}" for client in range(6)}
    plotly.graph_objects.Figure(heat)


def test_the_picture_of_the_partition_has_every_training_sample(tmp_path: Path) -> None:
    html = report_of(tmp_path / "run", **SMALL)
    (bubbles,) = [figure["data"][0] for figure in figures(html) if "class %{y}" in str(figure["data"][0])]
    with sqlite3.connect(tmp_path / "run" / "record.db") as database:
        held = dict(database.execute("SELECT name, training_samples FROM clients").fetchall())
    counted = dict.fromkeys(held, 0)
    for name, count in zip(bubbles["x"], bubbles["customdata"], strict=True):
        counted[name] += count
    assert counted == held and sum(counted.values()) > 0


def test_the_timeline_has_every_stretch_of_computing(tmp_path: Path) -> None:
    html = report_of(tmp_path / "run", **SMALL)
    (computing,) = [
        trace
        for figure in figures(html)
        for trace in figure["data"]
        if trace.get("hovertemplate", "").startswith("%{y}: computing<br>%{x:.6~g}")
    ]
    assert len(computing["x"]) == 3 * 6 * 4 and computing["y"][:3] == ["c000", "c000", None]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two methods beside its own, as it lies on the disk."""
    folder = tmp_path_factory.mktemp("study") / "run"
    tables = description(
        **SMALL, beside=[{"name": "local"}, {"name": "fedprox", "mu": 0.1}], record__plot=False, record__report=True
    )
    run_all(tables, folder, quiet=True)
    return folder


def test_a_run_leaves_a_page_with_the_methods_beside_it(study: Path) -> None:
    html = (study / "report.html").read_text()
    rows = re.findall(r"<tr[^>]*>\s*<td class=\"word\">(\w+)</td>", section(html, "Results"))
    assert rows == ["local", "fedprox", "fedavg"]
    assert section(html, "Accuracy").count("<li>") == 3
    assert not (study.with_name("run-local") / "report.html").exists()


@pytest.mark.timeout(TIMEOUT_S)
def test_a_browser_draws_the_page_of_a_study(study: Path) -> None:
    with chromium() as browser:
        assert_drawn_alike(browser, study / "report.html", 12)


@pytest.mark.timeout(TIMEOUT_S)
def test_a_browser_draws_the_page_of_peers_and_of_clusters(tmp_path: Path) -> None:
    report_of(tmp_path / "peers", **(AMONG | PEERS["asynchronous"]))
    report_of(tmp_path / "clusters", **(SMALL | CLUSTERED))
    with chromium() as browser:
        assert_drawn_alike(browser, tmp_path / "peers" / "report.html", 13)
        assert_drawn_alike(browser, tmp_path / "clusters" / "report.html", 12)


def test_what_was_run_names_codec_availability_and_faults_where_there_are_some(tmp_path: Path) -> None:
    fault = [{"kind": "slow-link", "factor": 2.0, "clients": ["c001"]}]
    away = {"kind": "bernoulli", "probability": 0.9, "period_s": 1.0}
    told = section(report_of(tmp_path / "a", codec={"up": "int4"}, fault=fault, availability=away), "What was run")
    facts = told.split("<details")[0]
    assert "int4" in facts and "slow-link" in facts and "bernoulli" in facts
    plain = section(report_of(tmp_path / "b"), "What was run").split("<details")[0]
    assert not any(f">{name}<" in plain for name in ("codec", "faults", "availability"))


def test_folders_beside_that_differ_in_more_than_the_method_are_left_out(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study, tmp_path / "run")
    run_into(tmp_path / "run-other", description(**(SMALL | {"run__seed": 9}), algorithm={"name": "local"}))
    (tmp_path / "run-empty").mkdir()
    assert "local" not in section(write_report(tmp_path / "run").read_text(), "Results")


def test_a_run_that_wants_no_page_has_none(tmp_path: Path) -> None:
    run_all(description(**SMALL, record__plot=False), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"run__eval_every": 0}, "Nobody was evaluated"),
        ({"record__spans": False}, "The run kept no spans"),
        ({"run__clients": 1, "run__rounds": 1}, "1 client with"),
    ],
    ids=["no evaluation", "no spans", "one client, one round"],
)
def test_a_page_says_what_its_run_does_not_tell(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    tables = description(**(SMALL | settings))
    run_into(tmp_path / "run", tables)
    if not tables.get("record", {}).get("spans", True):
        with sqlite3.connect(tmp_path / "run" / "record.db") as database:
            database.execute("DELETE FROM spans")  # what the recorder would not have kept
    html = write_report(tmp_path / "run").read_text()
    assert said in html
    for figure in figures(html):
        plotly.graph_objects.Figure(figure)


@pytest.mark.parametrize("rounds", [0, 2])
def test_an_unfinished_run_has_a_page_that_says_so(rounds: int, tmp_path: Path) -> None:
    run_into(tmp_path / "run", description(**SMALL))
    with sqlite3.connect(tmp_path / "run" / "record.db") as database:
        database.execute("DELETE FROM events WHERE actor = 'launcher'")
        for table in ("rounds", "evaluations", "sent", "spans", "measures"):
            database.execute(f"DELETE FROM {table} WHERE round > ?", (rounds,))
    html = write_report(tmp_path / "run").read_text()
    assert "Not a finished run: this run goes on, or was killed" in html
    assert ("No round has ended yet." in html) == (rounds == 0)


def test_a_failed_run_is_told_with_who_ended_it_and_its_words_are_only_text(tmp_path: Path) -> None:
    run_into(tmp_path / "run", description(**SMALL))
    with Record(tmp_path / "run" / "record.db", resume=True) as record:
        record.write(
            [
                ("events", "c003", "died", "c003: <script>alert(1)</script>", 0, 0.0),
                ("events", "launcher", "failed", "", 0, 0.0),
            ]
        )
    html = write_report(tmp_path / "run").read_text()
    assert "this run failed (c003: &lt;script&gt;alert(1)&lt;/script&gt;)" in html
    assert "<script>alert" not in html


def test_records_of_earlier_versions_are_told_as_that(tmp_path: Path) -> None:
    run_into(tmp_path / "run", description(**SMALL))
    with sqlite3.connect(tmp_path / "run" / "record.db") as database:
        database.execute("ALTER TABLE clients DROP COLUMN label_counts_json")
        database.execute("DROP TABLE bursts")
    html = write_report(tmp_path / "run").read_text()
    assert "made before the samples of each class were counted" in html
    assert "too old to tell which payloads were equal" in html
    with sqlite3.connect(tmp_path / "run" / "record.db") as database:
        database.execute("DROP TABLE clients")
    assert "made before clients&#39; data were recorded" in write_report(tmp_path / "run").read_text()


def test_a_record_without_tables_is_a_sentence(tmp_path: Path) -> None:
    study = Study(validate(description(**SMALL)), b"8 bytes.")
    (tmp_path / "run.toml").write_text(tomli_w.dumps(study.plan()["effective"]))
    sqlite3.connect(tmp_path / "record.db").close()
    said = CliRunner().invoke(pflsim, ["report", str(tmp_path)])
    assert isinstance(said.exception, sqlite3.Error)  # which the command line tells as "the record cannot be read"
    assert list(tmp_path.glob("report.html*")) == []


def test_a_page_that_cannot_be_written_where_it_shall_is_refused_by_that_place(study: Path, tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"^--out = '.*/no/page\.html': cannot be written: No such file"):
        write_report(study, tmp_path / "no" / "page.html")


def test_the_command_names_the_page_that_it_wrote(study: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(pflsim, ["report", str(study), "--out", str(tmp_path / "page.html")])
    assert said.output == f"report: {tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text() == (study / "report.html").read_text()
