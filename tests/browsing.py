"""A page in a real headless Chromium, for the tests: what it draws, what it says, and what it asks of the network."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DRAWN_MS = 120_000
TIMEOUT_S = 300
"""On a machine that is busy with other things."""


@dataclass
class Seen:
    """What a page did in the browser."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def is_within_its_width(self) -> bool:
        """Whether nothing has to be scrolled sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

    def pictures(self) -> int:
        """How many places for pictures there are."""
        return int(self.page.locator("[data-picture]").count())

    def empty_pictures(self) -> list[str]:
        """What pictures are about in which nothing is drawn: no line, bar, dot or cell with an extent."""
        found: list[str] = self.page.evaluate(
            """[...document.querySelectorAll("[data-picture]")].filter(place =>
              ![...place.querySelectorAll(".cartesianlayer .trace path, .cartesianlayer image")].some(mark => {
                const box = mark.getBoundingClientRect();
                return box.width + box.height > 1;
              })).map(place => place.getAttribute("aria-label"))"""
        )
        return found

    def ink(self) -> tuple[str, str]:
        """The colours of paper and of text."""
        style = "getComputedStyle(document.body)"
        return self.page.evaluate(f"{style}.backgroundColor"), self.page.evaluate(f"{style}.color")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; where there is none, or no playwright, the test is skipped with the reason."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed, so no page can be looked at")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, path: Path, *, width: int = 1280, scheme: str = "light") -> Iterator[Seen]:
    """A page, once all its pictures are drawn."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    seen = Seen(page)
    page.on("console", lambda said: seen.errors.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda problem: seen.errors.append(str(problem)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(path.resolve().as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn !== undefined", timeout=DRAWN_MS)
    yield seen
    page.close()
