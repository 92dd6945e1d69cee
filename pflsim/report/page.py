"""Builds a page: `page(title, sections)` gives one HTML file that needs nothing else, for paper and any screen.

A section has parts: pictures (alone or several in a grid), tables, paragraphs, lists, and text that is folded away. All
text is escaped. The library that draws the pictures is embedded once, compressed, and only if there is one to draw.
"""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined

from pflsim.report.picture import Picture


@dataclass(frozen=True)
class Grid:
    """Pictures side by side, below each other where the page is narrow; with one legend for all."""

    pictures: Sequence[Picture]
    caption: str = ""
    kind: str = field(default="grid", init=False)


@dataclass(frozen=True)
class Table:
    """Rows of text; the columns in `left` are words, all others numbers, which stand to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    left: frozenset[int] = frozenset({0})
    strong: int | None = None
    """A row that stands out."""
    kind: str = field(default="table", init=False)


@dataclass(frozen=True)
class Facts:
    """Names and what they stand for, in two columns."""

    rows: Sequence[tuple[str, str]]
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True)
class Tiles:
    """The few numbers that everybody wants to see: (what, number, what is to be said about it)."""

    tiles: Sequence[tuple[str, str, str]]
    kind: str = field(default="tiles", init=False)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: str = field(default="text", init=False)


@dataclass(frozen=True)
class Remarks:
    """What nobody should miss, one by one."""

    lines: Sequence[str]
    kind: str = field(default="remarks", init=False)


@dataclass(frozen=True)
class Lines:
    """A list."""

    lines: Sequence[str]
    kind: str = field(default="lines", init=False)


@dataclass(frozen=True)
class Folded:
    """Long text as it stands, shown when it is asked for."""

    title: str
    text: str
    kind: str = field(default="folded", init=False)


Part: TypeAlias = Picture | Grid | Table | Facts | Tiles | Text | Remarks | Lines | Folded


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; the page's contents name it."""

    title: str
    parts: Sequence[Part]
    lead: str = ""

    @property
    def anchor(self) -> str:
        """By which a link finds it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def page(title: str, sections: Sequence[Section], subtitle: str = "", head: Sequence[Part] = ()) -> str:
    """The page as HTML; `head` stands before the first section."""
    pictures: list[Any] = []

    def number(picture: Picture) -> int:
        pictures.append(picture.figure())
        return len(pictures) - 1

    body = (
        _environment()
        .get_template("body.html.jinja")
        .render(title=title, subtitle=subtitle, head=head, sections=sections, number=number)
    )
    drawn = {"pictures": packed(json.dumps(pictures, separators=(",", ":"), allow_nan=False)), "library": _library()}
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            title=title, body=body, style=_file("style.css"), script=_file("page.js"), **(drawn if pictures else {})
        )
    )


def packed(text: str) -> str:
    """Text as gzip in base64: about a quarter of it, and no letter of it is markup."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def _library() -> str:
    """What draws the pictures."""
    return packed((resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8"))


@cache
def _environment() -> Environment:
    loader = PackageLoader("pflsim.report", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _file(name: str) -> str:
    return (resources.files("pflsim.report") / "templates" / name).read_text(encoding="utf-8")
