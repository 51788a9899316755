"""``pond plot``, ``export`` and ``serve``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.options import argument, option
from quacklake.cli.output import plural
from quacklake.cli.pond.context import NodeName, PondContext
from quacklake.cli.pond.rows import First, Last
from quacklake.cli.progress import stages

if TYPE_CHECKING:
    from quacklake.pond.viewports import Viewport

_FORMATS = (".svg", ".png", ".html")
_DOTS = 2
"""The dots that a letter of the terminal is wide."""
_HTML_WIDTH = 4000
"""The pixels of a page: more than it shows, so that one can zoom in."""


def plot(
    context: PondContext,
    path: NodeName,
    column: Annotated[
        list[str] | None, option("--column -c", "A column to draw; all numbers by default.", "NAME")
    ] = None,
    time_start: First = None,
    time_end: Last = None,
    width: Annotated[int | None, option("--width", "Letters of the terminal, or pixels of a file.", "N")] = None,
    to: Annotated[
        str | None, option("--to", "Write a file: .svg, .png (needs quacklake[plot]) or .html.", "FILE")
    ] = None,
) -> None:
    """Each column is a picture of its own. Points come from the resolution that suits the width, and gaps stay gaps."""
    from quacklake.errors import InputError
    from quacklake.pond.plots.pictures import plot_width
    from quacklake.pond.times import parse_bound
    from quacklake.pond.viewports import viewport

    target = None if to is None else Path(to)
    if target is not None and target.suffix.lower() not in _FORMATS:
        raise InputError(f"{target.name} is none of {', '.join(_FORMATS)}", hint="--to picture.svg")
    first, last = parse_bound(time_start, "--time-start"), parse_bound(time_end, "--time-end")
    if target is None:
        size = width if width is not None else shutil.get_terminal_size().columns
        pixels = size * _DOTS
    else:
        size = 900 if width is None else width
        pixels = _HTML_WIDTH if target.suffix.lower() == ".html" else plot_width(size)
    with context.pond(write=True) as pond:
        seen = viewport(pond, path, first, last, pixels, column)
    if target is not None:
        _write(target, seen, size)
        what = seen.resolution or "readings"
        facts: dict[str, Any] = {"path": seen.path, "file": str(target), "resolution": seen.resolution}
        context.output.result(f"drew {', '.join(seen.lines)} of {seen.path} ({what}) to {target}", facts)
    elif context.output.for_people:
        _print(context, seen, size)
    else:
        context.output.rows(seen.to_arrow())


def _print(context: PondContext, seen: Viewport, size: int) -> None:
    from quacklake.pond.plots.braille import draw
    from quacklake.pond.viewports import micros

    start, end = micros(seen.start), micros(seen.end)
    kind = "" if seen.resolution is None else f" by {seen.resolution}"
    for name, line in seen.lines.items():
        for row in draw(f"{seen.path} {name}{kind}", line, start, end, size):
            context.output.say(row)


def _write(target: Path, seen: Viewport, size: int) -> None:
    from quacklake.errors import InputError
    from quacklake.pond.plots.pictures import Panel, png, svg
    from quacklake.pond.viewports import micros

    panels = [Panel(name, line) for name, line in seen.lines.items()]
    start, end = micros(seen.start), micros(seen.end)
    match target.suffix.lower():
        case ".svg":
            content = svg(panels, start, end, size).encode()
        case ".png":
            content = png(panels, start, end, size)
        case _:
            from quacklake.pond.site.export import viewport_page

            content = viewport_page(seen.path, {", ".join(seen.lines): seen}).encode()
    try:
        target.write_bytes(content)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None


def export(
    context: PondContext,
    dir: Annotated[str, option("--dir -d", "The folder to write into.", "DIR")],
    pattern: Annotated[str | None, option("--pattern -p", "The series and tables to write.", "PATTERN")] = None,
    site: Annotated[str | None, option("--site", "Write this site of kind Site: its name or its path.", "NAME")] = None,
    temporal: Annotated[str, option("--temporal", "Folders by time, such as year,month.", "PARTS")] = "",
    start_time: Annotated[str | None, option("--start-time", "Only rows from this time on.", "TIME")] = None,
    end_time: Annotated[str | None, option("--end-time", "Only rows up to this time.", "TIME")] = None,
    force: Annotated[bool, option("--force", "Replace what an earlier export has written.")] = False,
) -> None:
    """With --pattern: Parquet files that any program reads, in folders such as year=2024/month=1, times in UTC.

    With --site: pages with zoomable charts, which need no server. A second export writes only what has changed.
    """
    from quacklake.errors import InputError
    from quacklake.pond.times import parse_bound

    if (pattern is None) == (site is None):
        raise InputError("name either a --pattern or a --site", hint="pond export --pattern '/**/*.series' --dir out")
    folder = Path(dir)
    if site is not None:
        if temporal or start_time or end_time:
            raise InputError("--temporal, --start-time and --end-time are for --pattern")
        _export_site(context, site, folder)
        return
    from quacklake.pond.hive import export as export_rows
    from quacklake.pond.hive import parse_temporal

    parts = parse_temporal(temporal)
    first, last = parse_bound(start_time, "--start-time"), parse_bound(end_time, "--end-time")
    with context.pond(write=True) as pond:
        done = export_rows(pond, str(pattern), folder, parts, first, last, force=force)
    if context.output.for_people:
        rows = sum(each.rows for each in done)
        context.output.say(f"wrote {plural(rows, 'row')} in {plural(len(done), 'file')} below {folder}")
        return
    import pyarrow as pa

    moment = pa.timestamp("us", "UTC")
    columns: dict[str, Any] = {
        "path": pa.array([each.path for each in done], pa.string()),
        "file": pa.array([str(each.file) for each in done], pa.string()),
        "captures": pa.array([list(each.captures) for each in done], pa.list_(pa.string())),
        "temporal": pa.array([list(each.temporal.items()) for each in done], pa.map_(pa.string(), pa.int64())),
        "rows": pa.array([each.rows for each in done], pa.int64()),
        "start_time": pa.array([each.start_time for each in done], moment),
        "end_time": pa.array([each.end_time for each in done], moment),
    }
    context.output.rows(pa.table(columns))


def _export_site(context: PondContext, name: str, folder: Path) -> None:
    from quacklake.pond.site.export import export_site

    with context.pond(write=True) as pond, stages() as progress:
        built = export_site(pond, name, folder, progress=progress)
    pages, charts = plural(built.pages, "page"), plural(built.charts, "chart")
    facts: dict[str, Any] = {"dir": str(folder), "pages": built.pages, "charts": built.charts, "tiles": built.tiles}
    context.output.result(f"wrote {pages} and {charts} to {folder}: open {folder / 'index.html'}", facts)


def serve(
    context: PondContext,
    dir: Annotated[str, argument("DIR", "The folder of the site.")],
    port: Annotated[int, option("--port", "The port; 0 for any that is free.", "PORT")] = 8000,
) -> None:
    """Only this machine can see it. Ctrl-C ends it. For others, copy the folder to any web server."""
    from quacklake.pond.site.serving import server

    with server(Path(dir), port) as running:
        url = f"http://127.0.0.1:{running.server_port}/"
        context.output.result(f"{dir} is at {url}; Ctrl-C ends it", {"url": url})
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            context.output.say("ended")
