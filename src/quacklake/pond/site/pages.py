"""The pages of a site as HTML, and its feed as RSS. Everything here is text made of data."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import format_datetime
from html import escape
from importlib.resources import files
from typing import Any

from quacklake.pond.site.definition import INDEX, ChartDefinition, Page, Site

FEED = "feed.xml"
_PLACE = re.compile(r"<p>\{\{ *([A-Za-z0-9_-]+) *\}\}</p>")


def asset(name: str) -> str:
    """Return a file that comes with every site."""
    return files("quacklake.pond.site").joinpath(name).read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that is ready: its lines, what ``tiles`` made of it, and the scripts a page reads first."""

    definition: ChartDefinition
    lines: tuple[str, ...]
    about: Mapping[str, Any]
    scripts: tuple[str, ...]
    newest: dt.datetime | None

    @property
    def title(self) -> str:
        """The title, or else the names of the series."""
        return self.definition.title or ", ".join(self.definition.series)


def markdown(text: str) -> str:
    """Return Markdown as HTML. HTML in it is shown as text."""
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def chart_html(chart: Chart, base: str = "charts/", picture: str | None = None) -> str:
    """Return the element that chart.js makes a chart of; without JavaScript, there is a picture."""
    about = {"id": chart.definition.name, "title": chart.title, "lines": list(chart.lines), "base": base, **chart.about}
    if chart.definition.range is not None:
        about["range"] = round(chart.definition.range.total_seconds() * 1000)
    data = json.dumps(about, separators=(",", ":")).replace("<", "\\u003c")
    image = f'<noscript><img src="{escape(picture)}" alt="{escape(chart.title)}"></noscript>' if picture else ""
    return (
        f'<figure class="chart" id="{chart.definition.name}"><h3>{escape(chart.title)}</h3>{image}'
        f'<script type="application/json">{data}</script></figure>'
    )


def page_html(site: Site, page: Page, charts: Mapping[str, Chart]) -> str:
    """Return a page."""
    body = markdown(page.content)
    shown = {chart.name: chart_html(charts[chart.name], picture=f"charts/{chart.name}.svg") for chart in page.charts}

    def place(found: re.Match[str]) -> str:
        return shown.pop(found[1], found[0])

    body = _PLACE.sub(place, body) + "\n".join(shown.values())
    scripts = [f"charts/{name}" for chart in page.charts for name in charts[chart.name].scripts]
    title = site.title if page.name == INDEX else f"{page.title} – {site.title}"
    menu = " ".join(
        f'<a href="{each.file}"{" aria-current=page" if each.name == page.name else ""}>{escape(each.title)}</a>'
        for each in site.pages
    )
    tags = "".join(f'<script defer src="{escape(each)}"></script>\n' for each in ("pond/chart.js", *scripts))
    date = f"<p class=caption>{page.date.isoformat()}</p>" if page.date else ""
    return f"""<!doctype html>
<html lang="{escape(site.language)}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{escape(site.description)}">
<title>{escape(title)}</title>
<link rel="stylesheet" href="pond/style.css">
<link rel="icon" href="data:,">
<link rel="alternate" type="application/rss+xml" title="{escape(site.title)}" href="{FEED}">
{tags}</head>
<body>
<header><strong>{escape(site.title)}</strong><nav>{menu}</nav></header>
<main>
{date}{body}
</main>
<footer><a href="{FEED}">Feed</a></footer>
</body>
</html>
"""


def single_page(title: str, charts: Sequence[Chart], tiles: Sequence[str]) -> str:
    """Return one page that has everything in it: style, program, charts and their tiles."""
    body = "\n".join(chart_html(chart) for chart in charts)
    scripts = "\n".join(tiles).replace("</", "<\\/")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{asset("style.css")}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
<script>{asset("chart.js")}</script>
<script>{scripts}</script>
</body>
</html>
"""


def feed_xml(site: Site, charts: Mapping[str, Chart], most: int = 30) -> str:
    """Return the feed: pages with a date, and charts with the time of their newest reading, newest first."""
    entries: list[tuple[dt.datetime, str, str, str]] = []
    for page in site.pages:
        if page.date is not None:
            at = dt.datetime(page.date.year, page.date.month, page.date.day, tzinfo=dt.UTC)
            entries.append((at, page.title, page.file, page.content.strip().partition("\n\n")[0]))
        for definition in page.charts:
            chart = charts[definition.name]
            if chart.newest is not None:
                words = f"Readings up to {chart.newest:%Y-%m-%d %H:%M} UTC"
                entries.append((chart.newest, chart.title, f"{page.file}#{definition.name}", words))
    entries.sort(key=lambda entry: (entry[0], entry[1]), reverse=True)
    base = f"{site.site_url}/" if site.site_url else ""
    items = "\n".join(
        f"<item><title>{escape(title)}</title><link>{escape(base + link)}</link>"
        f"<description>{escape(words)}</description>"
        f'<guid isPermaLink="false">{escape(f"{base}{link}@{at.isoformat()}")}</guid>'
        f"<pubDate>{format_datetime(at)}</pubDate></item>"
        for at, title, link, words in entries[:most]
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel>\n'
        f"<title>{escape(site.title)}</title><link>{escape(base or 'index.html')}</link>"
        f"<description>{escape(site.description or site.title)}</description>"
        f"<language>{escape(site.language)}</language>\n{items}\n</channel></rss>\n"
    )
