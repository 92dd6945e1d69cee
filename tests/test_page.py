"""The builder of pages: one file that needs nothing else, in which all text is only text."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pflsim.report.page import Facts, Folded, Grid, Lines, Remarks, Section, Table, Text, Tiles, packed, page
from pflsim.report.picture import Key, Picture, axis, numbers
from tests.browsing import TIMEOUT_S, chromium, opened

HOSTILE = "<img src=x onerror=alert(1)></script><b>&\"'"
LINE = Picture([{"type": "scatter", "x": [1, 2], "y": [3, 4]}], {"xaxis": axis("round")}, "a line")


def everything(text: str) -> list[Section]:
    """A page's parts, all of which say `text`."""
    parts = [
        Text(text),
        Remarks([text]),
        Lines([text]),
        Folded(text, text),
        Facts([(text, text)]),
        Tiles([(text, text, text)]),
        Table([text], [[text]], text, text),
        Picture(LINE.traces, LINE.layout, text, title=text, caption=text, legend=[Key(text, "red")]),
        Grid([LINE, LINE], text),
    ]
    return [Section(text, parts, text)]


def unpacked(html: str, name: str) -> str:
    (found,) = re.findall(rf'<script type="text/plain" id="{name}">([^<]*)</script>', html)
    return gzip.decompress(base64.b64decode(found)).decode()


def test_no_text_of_a_page_is_taken_for_markup() -> None:
    html = page(HOSTILE, everything(HOSTILE), HOSTILE, [Text(HOSTILE)])
    assert "<img" not in html and "onerror=alert(1)>" not in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") >= 20


def test_pictures_are_numbered_in_the_order_of_the_page() -> None:
    html = page("t", everything("x"))
    assert re.findall(r'data-picture="(\d+)"', html) == ["0", "1", "2"]
    figures = json.loads(unpacked(html, "pictures"))
    assert len(figures) == 3 and figures[1]["data"] == LINE.traces


def test_a_page_is_the_same_file_again_and_names_nothing_outside_itself() -> None:
    first = page("t", everything("x"))
    assert page("t", everything("x")) == first
    assert not re.search(r'(src|href)="(?!#|data:,)', first)


def test_a_page_without_pictures_carries_no_library() -> None:
    assert len(page("t", [Section("s", [Text("x")])])) < 20_000


def test_a_page_with_pictures_is_small() -> None:
    assert len(page("t", everything("x"))) < 2_500_000


def test_what_is_packed_is_no_markup_and_comes_back() -> None:
    text = "</script>" + "é" * 1000
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", packed(text))
    assert gzip.decompress(base64.b64decode(packed(text))).decode() == text


def test_numbers_are_short_and_what_is_none_is_none() -> None:
    assert numbers([1 / 3, 2.0, float("nan"), float("inf"), None, 1234567.8]) == [
        0.333333,
        2,
        None,
        None,
        None,
        1234570.0,
    ]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("scheme", "paper"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")])
def test_a_browser_draws_every_picture_and_takes_no_text_for_markup(tmp_path: Path, scheme: str, paper: str) -> None:
    (tmp_path / "page.html").write_text(page(HOSTILE, everything(HOSTILE)), encoding="utf-8")
    with chromium() as browser, opened(browser, tmp_path / "page.html", scheme=scheme, width=400) as seen:
        assert (seen.errors, seen.empty_pictures(), seen.pictures()) == ([], [], 3)
        assert seen.requests == [(tmp_path / "page.html").as_uri()]
        assert seen.is_within_its_width() and seen.ink()[0] == paper
        assert seen.page.locator("img").count() == 0
        assert seen.page.locator("h1").inner_text() == HOSTILE


@pytest.mark.timeout(TIMEOUT_S)
def test_a_browser_that_prints_fits_the_pictures_to_the_paper(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page("t", everything("x")), encoding="utf-8")
    with chromium() as browser, opened(browser, tmp_path / "page.html") as seen:
        width: Any = 'document.querySelector(".main-svg").getBoundingClientRect().width'
        before = seen.page.evaluate(width)
        seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert before > 1000 and seen.page.evaluate(width) == 690
        seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
        seen.page.wait_for_function(f"{width} === {before}")
        assert seen.page.pdf().startswith(b"%PDF")


@pytest.mark.timeout(TIMEOUT_S)
def test_an_empty_picture_is_found(tmp_path: Path) -> None:
    """What the tests of pages rely on: a place in which no mark is drawn is seen."""
    empty = Picture([{"type": "scatter", "x": [], "y": []}], {}, "nothing")
    (tmp_path / "page.html").write_text(page("t", [Section("s", [empty, LINE])]), encoding="utf-8")
    with chromium() as browser, opened(browser, tmp_path / "page.html") as seen:
        assert seen.empty_pictures() == ["nothing"]
