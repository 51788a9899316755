"""Write a site: its pages, its feed and the tiles of its charts, into a folder that needs no server."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from quacklake.errors import AlreadyExistsError, ConfigError, InputError, NotFoundError
from quacklake.extend.names import quote
from quacklake.extend.reporting import Progress, silent
from quacklake.pond import reduces
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.nodes import TIMESTAMP_COLUMN, EntryType
from quacklake.pond.plots.pictures import Panel, plot_width, svg
from quacklake.pond.pond import Pond
from quacklake.pond.queries import Relations, relations
from quacklake.pond.site.definition import ChartDefinition, Site
from quacklake.pond.site.pages import FEED, Chart, asset, feed_xml, page_html, single_page
from quacklake.pond.site.tiles import Manifest, TileBuilder, as_json, first_tiles, write_text
from quacklake.pond.times import require_column
from quacklake.pond.viewports import Viewport, micros, moment, viewport

SITES = "/sites"
"""The directory of the definitions of sites, if they say no other."""
_MARK = "pond/site.json"
"""The file by which a folder is known as a site that may be written again."""
_MAX_LINES = 16
_PICTURE = 900


@dataclass(frozen=True, slots=True)
class Built:
    """The report of an export: the pages, charts and tiles of the site."""

    folder: Path
    pages: int
    charts: int
    tiles: int


def find_site(fs: FS, name: str) -> tuple[str, Site]:
    """Return the path and the definition of a site, by its path or its name in ``/sites``."""
    import yaml

    path = name if name.startswith("/") else f"{SITES}/{name}.yaml"
    found = fs.get(path)
    if found.node.file_type is not EntryType.DATA:
        raise InputError(f"{found.path} is a {found.entry_type}, not the definition of a site")
    try:
        given = yaml.safe_load(fs.read(found.path))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{found.path} is not valid YAML: {' '.join(str(error).split())}") from None
    return found.path, Site.of(given)


def export_site(pond: Pond, name: str, folder: Path, *, progress: Progress = silent) -> Built:
    """Write a site into a folder, which is empty or has an earlier export. Files that are the same stay untouched.

    Raise ``AlreadyExistsError`` for a folder with anything else in it.
    """
    path, site = find_site(pond.fs(), name)
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise AlreadyExistsError(f"{folder} has other files in it", hint="choose an empty folder")
    definitions = [chart for page in site.pages for chart in page.charts]
    charts, tiles = {}, 0
    for number, definition in enumerate(definitions):
        progress("drawing charts", number, len(definitions))
        charts[definition.name], manifest = _chart(pond, definition, folder)
        tiles += manifest.tiles
    write_text(folder / _MARK, json.dumps({"site": path}) + "\n")
    for name in ("chart.js", "style.css"):
        write_text(folder / "pond" / name, asset(name))
    for page in site.pages:
        write_text(folder / page.file, page_html(site, page, charts))
    write_text(folder / FEED, feed_xml(site, charts))
    _remove_old(folder, {page.file for page in site.pages}, set(charts))
    return Built(folder, len(site.pages), len(charts), tiles)


def _remove_old(folder: Path, pages: set[str], charts: set[str]) -> None:
    for file in folder.glob("*.html"):
        if file.name not in pages:
            file.unlink()
    for each in (folder / "charts").glob("*"):
        if each.is_dir() and each.name not in charts:
            shutil.rmtree(each)
        elif each.suffix == ".svg" and each.stem not in charts:
            each.unlink()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a chart: a column of a series, and what it is called."""

    found: NodePath
    time: str
    column: str
    label: str


def _chart(pond: Pond, definition: ChartDefinition, folder: Path) -> tuple[Chart, Manifest]:
    fs = pond.fs()
    sources = _sources(fs, definition)
    for found in sources:
        reduces.refresh(pond, fs, found)
    place = folder / "charts" / definition.name
    with tempfile.TemporaryDirectory(prefix="pond-site-") as scratch, TileBuilder(Path(scratch)) as builder:
        with relations(pond) as opened:
            lines = _lines(opened, definition, sources)
            for line in lines:
                builder.add(_readings(opened, line))
        manifest = builder.write(definition.name, place)
    _write_picture(pond, lines, place.with_suffix(".svg"))
    return _ready(definition, [line.label for line in lines], manifest), manifest


def _ready(definition: ChartDefinition, labels: Sequence[str], manifest: Manifest) -> Chart:
    start = manifest.start
    if definition.range is not None:
        start = max(start, manifest.end - round(definition.range.total_seconds() * 1000))
    scripts = tuple(
        f"{definition.name}/{level}/{tile}.js" for level, tile in first_tiles(manifest, start, manifest.end)
    )
    newest = moment(manifest.end * 1000) if manifest.levels else None
    return Chart(definition, tuple(labels), as_json(manifest), scripts, newest)


def _sources(fs: FS, definition: ChartDefinition) -> list[NodePath]:
    found: dict[str, NodePath] = {}
    for pattern in definition.series:
        some = [each for each in fs.glob(pattern) if each.entry_type.has_rows]
        if not some:
            raise NotFoundError(
                f"the chart {definition.name} shows {pattern}, and no series is called so",
                hint="`pond list` shows what there is",
            )
        found.update({each.path: each for each in some})
    return list(found.values())


def _lines(opened: Relations, definition: ChartDefinition, sources: Sequence[NodePath]) -> list[_Line]:
    lines = []
    for found in sources:
        schema = opened.tx.sql(f"SELECT * FROM {opened.name(found)} LIMIT 0").to_arrow().schema
        time = str(found.node.attribute(TIMESTAMP_COLUMN) or "") or require_column(schema.names, None, found.path)
        numbers = reduces.numbers_of(schema, time)
        short = found.path.rpartition("/")[2].removesuffix(".series")
        for column in numbers:
            if not definition.columns or column in definition.columns:
                lines.append(_Line(found, time, column, column if len(sources) == 1 else f"{short} {column}"))
    if not 0 < len(lines) <= _MAX_LINES:
        raise ConfigError(
            f"the chart {definition.name} would have {len(lines)} lines",
            hint=f"name between 1 and {_MAX_LINES} columns of numbers with series and columns",
        )
    return lines


def _readings(opened: Relations, line: _Line) -> pa.RecordBatchReader:
    time = f"epoch_ms({quote(line.time)})"
    query = f"SELECT {time} AS t, CAST({quote(line.column)} AS DOUBLE) AS v FROM {opened.shown(line.found)} ORDER BY 1"
    return opened.tx.sql(query).to_reader()


def _write_picture(pond: Pond, lines: Sequence[_Line], path: Path) -> None:
    """Write the picture that browsers without JavaScript show."""
    by_path: dict[str, list[_Line]] = {}
    for line in lines:
        by_path.setdefault(line.found.path, []).append(line)
    panels, bounds = [], list[int]()
    for source, own in by_path.items():
        seen = viewport(pond, source, width=plot_width(_PICTURE), columns=[line.column for line in own])
        panels += [Panel(line.label, seen.lines[line.column]) for line in own]
        bounds += [micros(seen.start), micros(seen.end)]
    write_text(path, svg(panels, min(bounds), max(bounds), _PICTURE))


# -- one page ----------------------------------------------------------------------------------------------------------


def viewport_page(title: str, views: Mapping[str, Viewport]) -> str:
    """Return one page with a chart for each viewport, which needs no other file."""
    charts, tiles = [], []
    for number, (name, seen) in enumerate(views.items()):
        definition = ChartDefinition(f"chart-{number}", name, (seen.path,), (), None)
        with tempfile.TemporaryDirectory(prefix="pond-page-") as scratch, TileBuilder(Path(scratch)) as builder:
            for line in seen.lines.values():
                times = pa.array([t // 1000 for t in line.times], pa.int64())
                rows = pa.table({"t": times, "v": pa.array(line.values, pa.float64())})
                builder.add(rows.to_reader())
            manifest = builder.write(definition.name, Path(scratch, "tiles"))
            tiles += [file.read_text("utf-8") for file in sorted(Path(scratch, "tiles").glob("*/*.js"))]
        charts.append(_ready(definition, list(seen.lines), manifest))
    return single_page(title, charts, tiles)


def store_site(fs: FS, path: str, given: Mapping[str, Any]) -> bool | None:
    """Keep the definition of a site in a file of the pond. Return None for a new one, else whether it has changed."""
    import yaml

    Site.of(given)
    content = yaml.safe_dump(dict(given), sort_keys=False, allow_unicode=True).encode()
    found = fs.find(path)
    if found is not None and found.node.file_type is EntryType.DATA and fs.read(path) == content:
        return False
    above = path.rpartition("/")[0]
    if above:
        fs.make_directory(above, parents=True)
    fs.write_file(path, content, replace=True)
    return None if found is None else True
