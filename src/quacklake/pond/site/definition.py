"""The definition of a site, as data: pages, their texts and their charts. ``Site.of`` reads it from YAML."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quacklake.config import parse_duration
from quacklake.config.mappings import Options
from quacklake.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,80}")
_URL = re.compile(r"https?://[^\s<>\"']+")
INDEX = "index"


@dataclass(frozen=True, slots=True)
class ChartDefinition:
    """A chart: the series it shows, some of their columns, and how much of the past it shows first."""

    name: str
    title: str
    series: tuple[str, ...]
    columns: tuple[str, ...]
    range: dt.timedelta | None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: Markdown and charts. A line ``{{ name }}`` of the text is where the chart of that name goes."""

    name: str
    title: str
    content: str
    date: dt.date | None
    charts: tuple[ChartDefinition, ...]

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.html"


@dataclass(frozen=True, slots=True)
class Site:
    """A site: its title, and its pages in the order of the menu."""

    title: str
    description: str
    site_url: str
    language: str
    pages: tuple[Page, ...]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Site:
        """Return the site that a mapping describes. Raise ``ConfigError``."""
        options = Options("a site", given)
        title, description = options.text("title"), options.text("description", "")
        url, language = options.text("site_url", "").rstrip("/"), options.text("language", "en")
        default = _range(options, "default_range", None)
        pages = tuple(_page(each, default) for each in options.mappings("pages"))
        options.finish()
        if url and not _URL.fullmatch(url):
            raise ConfigError(f"{url!r} is not the address of a site", hint="site_url: https://example.org/dock")
        if not re.fullmatch(r"[A-Za-z-]{2,20}", language):
            raise ConfigError(f"{language!r} is not a language", hint="language: en")
        if not pages:
            raise ConfigError("a site has no pages", hint="pages: [{name: index, content: …, charts: […]}]")
        _once("page", [page.name.lower() for page in pages])
        _once("chart", [chart.name.lower() for page in pages for chart in page.charts])
        if all(page.name != INDEX for page in pages):
            raise ConfigError(f"a site needs a page called {INDEX}", hint=f"name: {INDEX}")
        return cls(title, description, url, language, pages)


def _once(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"there are two {what}s {name!r}", hint="give one of them another name")


def _page(given: Mapping[str, Any], default: dt.timedelta | None) -> Page:
    options = Options("a page", given)
    name = _name(options.text("name"), "page")
    title, content = options.text("title", name.replace("-", " ").capitalize()), options.text("content", "")
    date = options.take("date")
    charts = [_chart(each, f"{name}-{number}", default) for number, each in enumerate(options.mappings("charts"), 1)]
    options.finish()
    if isinstance(date, str):
        try:
            date = dt.date.fromisoformat(date)
        except ValueError:
            raise ConfigError(f"{date!r} is not a date", hint="date: 2024-01-31") from None
    if date is not None and not isinstance(date, dt.date):
        raise ConfigError(f"the date of {name} is not a date", hint="date: 2024-01-31")
    return Page(name, title, content, date, tuple(charts))


def _chart(given: Mapping[str, Any], name: str, default: dt.timedelta | None) -> ChartDefinition:
    options = Options("a chart", given)
    name = _name(options.text("name", name), "chart")
    title, series, columns = options.text("title", ""), options.texts("series"), options.texts("columns")
    range = _range(options, "range", default)
    options.finish()
    if not series:
        raise ConfigError(f"the chart {name} has no series", hint="series: /sensors/*.series")
    return ChartDefinition(name, title, tuple(series), tuple(columns), range)


def _name(text: str, what: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{text!r} cannot be the name of a {what}", hint="letters, digits, - and _")
    return text


def _range(options: Options, key: str, default: dt.timedelta | None) -> dt.timedelta | None:
    text = options.text(key, "")
    if not text:
        return default
    try:
        return parse_duration(text, bare=False)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}", hint=f"{key}: 30d") from None


def with_files(given: Mapping[str, Any], read: Callable[[str], str]) -> dict[str, Any]:
    """Return a definition in which ``file`` of a page is replaced by the text of that file, which ``read`` gives."""
    pages = given.get("pages")
    if not isinstance(pages, list):
        return dict(given)
    found = []
    for page in pages:
        if isinstance(page, Mapping) and "file" in page:
            if "content" in page:
                raise ConfigError(f"the page {page.get('name')} has both file and content")
            page = {key: value for key, value in page.items() if key != "file"} | {"content": read(str(page["file"]))}
        found.append(page)
    return {**given, "pages": found}
