"""Series as pictures show them: a range of time, a width in pixels, and the points that suit it.

All rows are read in a safe session, with what the principal may see. Of a pond, only what is stored is read: nodes that
are computed run SQL that somebody wrote, and mounted ponds are other people's.
"""

from __future__ import annotations

import datetime as dt
import math
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.errors import (
    InputError,
    NotFoundError,
    QuacklakeError,
    StatementTimeoutError,
    UnsupportedFeatureError,
)
from quacklake.extend.names import TableRef, literal, quote

if TYPE_CHECKING:
    from quacklake.lake import LakeAt
    from quacklake.pond.downsampling import Line, Range
    from quacklake.pond.fs import FS, NodePath
    from quacklake.service.identity import Identity
    from quacklake.service.state import Service

_Values = tuple[str, str | None, str | None]
"""The value of a column, and what is known as its bounds, as SQL."""
_EARLIEST = -62_135_596_800_000_000
"""The year 1, in microseconds since 1970."""

__all__ = ["Window", "described", "nodes", "of_node", "of_table", "tree"]


@dataclass(frozen=True)
class Window:
    """A range of time, as a request gives it, the pixels it has, and the columns to draw."""

    start: dt.datetime | None
    end: dt.datetime | None
    width: int
    columns: Sequence[str] | None

    @classmethod
    def parse(cls, start: str | None, end: str | None, width: int, columns: Sequence[str] | None) -> Window:
        """Return the window of a request. Raise ``InputError``."""
        from quacklake.pond.times import parse_bound

        first, last = parse_bound(start, "from"), parse_bound(end, "to")
        if first is not None and last is not None and first > last:
            raise InputError("the first time is after the last")
        return cls(first, last, width, columns)


@dataclass(frozen=True)
class _PointRows:
    """A table at a snapshot whose rows are points: ``time`` is its time column."""

    table: str
    time: str
    zoned: bool
    snapshot: int
    low: dt.datetime | None = None
    high: dt.datetime | None = None

    def between(self, first: dt.datetime | None, last: dt.datetime | None) -> str:
        """Return the rows of a range as SQL, within the bounds that were set by hand."""
        first = max(filter(None, (first, self.low)), default=None)
        last = min(filter(None, (last, self.high)), default=None)
        ends = ((">=", first), ("<=", last))
        where = " AND ".join(f"{quote(self.time)} {sign} {self._literal(end)}" for sign, end in ends if end is not None)
        condition = f" WHERE {where}" if where else ""
        return f"(SELECT * FROM {self.table} AT (VERSION => {self.snapshot:d}){condition})"

    def _literal(self, moment: dt.datetime) -> str:
        """Return a time as SQL. Times without a zone are those of UTC, whatever zone the session has."""
        text = moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ")
        return f"TIMESTAMPTZ {literal(f'{text}+00')}" if self.zoned else f"TIMESTAMP {literal(text)}"


def of_table(
    service: Service, identity: Identity, at: LakeAt, snapshot: int, table: str, time: str | None, window: Window
) -> dict[str, Any]:
    """Return the points of a table with a time column."""
    from quacklake.pond.times import require_column
    from quacklake.pond.viewports import columns_of

    ref = TableRef.parse(table)
    info = at.handle.view().find_table(ref.schema, ref.name)
    schema: pa.Schema = info.schema.to_arrow()
    name = require_column(schema.names, time, info.qualified_name)
    if not (pa.types.is_timestamp(schema.field(name).type) or pa.types.is_date(schema.field(name).type)):
        raise InputError(f"the column {name!r} of {info.qualified_name} has no times", hint="time=… names another")
    columns = columns_of(schema, name, window.columns, info.qualified_name)
    rows = _PointRows(f"{quote(info.schema_name)}.{quote(info.name)}", name, _has_zone(schema, name), snapshot)
    over, first, last = _range(service, identity, rows, window)
    values: dict[str, _Values] = {column: (quote(column), None, None) for column in columns}
    lines = _lines(service, identity, rows, values, over, None)
    return {"table": info.qualified_name, "time": name, **_describe_window(first, last, window, None, lines)}


def of_node(
    service: Service, identity: Identity, at: LakeAt, snapshot: int, path: str, window: Window
) -> dict[str, Any]:
    """Return the points of a series of a pond: its own, or those of its coarsest reduction that suits the width."""
    from quacklake.pond.downsampling import Range
    from quacklake.pond.nodes import TIMESTAMP_COLUMN
    from quacklake.pond.paths import table_of
    from quacklake.pond.series import bounds_of
    from quacklake.pond.times import require_column
    from quacklake.pond.viewports import columns_of, interval_of, source_of

    fs = tree(at)
    found = fs.get(path)
    if not found.entry_type.has_rows:
        raise InputError(f"{found.path} is a {found.entry_type}, which has no rows")
    if not found.node.file_type.has_rows:
        raise UnsupportedFeatureError(
            f"{found.path} is computed, and the service reads stored rows only", hint="ask for the series that it reads"
        )
    ref = TableRef.parse(table_of(found.path))
    schema = at.handle.view().find_table(ref.schema, ref.name).schema.to_arrow()
    time = str(found.node.attribute(TIMESTAMP_COLUMN) or "") or require_column(schema.names, None, found.path)
    columns = columns_of(schema, time, window.columns, found.path)
    rows = _PointRows(table_of(found.path), time, _has_zone(schema, time), snapshot, *bounds_of(found.node))
    over, first, last = _range(service, identity, rows, window)
    source, interval, resolution = source_of(fs, found, time, columns, over), None, None
    table = None if source.reduction is None else _find_reduced(at, fs, source.found)
    if table is not None and source.reduction is not None:
        interval, resolution = interval_of(source.found), source.reduction.resolution.text
        rows = _PointRows(table, source.time, rows.zoned, snapshot)
        # the first bucket begins before the range
        over = Range(max(over.start - (interval or 0), _EARLIEST), over.end, over.width)
    values: dict[str, _Values] = {
        column: (quote(column), None, None) if resolution is None else source.columns(column) for column in columns
    }
    lines = _lines(service, identity, rows, values, over, interval)
    return {"path": found.path, "time": time, **_describe_window(first, last, window, resolution, lines)}


def _has_zone(schema: pa.Schema, time: str) -> bool:
    type_ = schema.field(time).type
    return bool(pa.types.is_timestamp(type_)) and type_.tz is not None


def _find_reduced(at: LakeAt, fs: FS, found: NodePath) -> str | None:
    """Return the table that keeps a reduction, if its rows are those of this snapshot."""
    from quacklake.pond import reduces

    options = reduces.options_of(found)
    known = None if options is None else reduces.kept(fs, options)
    return known.table if known is not None and reduces.is_current(at, known) else None


def _range(
    service: Service, identity: Identity, rows: _PointRows, window: Window
) -> tuple[Range, dt.datetime, dt.datetime]:
    """Return the range of a window, and its two times; where it is open, those of the rows."""
    from quacklake.pond.downsampling import Range
    from quacklake.pond.viewports import micros, moment

    first, last = window.start, window.end
    if first is None or last is None:
        time = quote(rows.time)
        text = f"SELECT epoch_us(min({time})) AS a, epoch_us(max({time})) AS b FROM {rows.between(first, last)}"
        [row] = _run_query(service, identity, text).to_pylist()
        try:
            first, last = first or moment(row["a"] or 0), last or moment(row["b"] or 0)
        except OverflowError:
            raise InputError("the times are beyond the year 9999", hint="name a range: from=…&to=…") from None
    last = max(first, last)
    return Range(micros(first), micros(last), window.width), first, last


def _lines(
    service: Service,
    identity: Identity,
    rows: _PointRows,
    values: dict[str, _Values],
    over: Range,
    interval: int | None,
) -> dict[str, Line]:
    """Return the points of columns. Raise ``StatementTimeoutError`` when all together take too long."""
    from quacklake.pond.downsampling import buckets_query, choose, of_rows
    from quacklake.pond.viewports import moment

    source, until = rows.between(moment(over.start), moment(over.end)), clock.monotonic()
    until += service.settings.statement_seconds
    lines = {}
    for name, (value, low, high) in values.items():
        if clock.monotonic() > until:
            raise StatementTimeoutError("the picture takes too long", hint="ask for fewer columns")
        text = buckets_query(source, f"epoch_us({quote(rows.time)})", value, over, low, high)
        lines[name] = choose(of_rows(_run_query(service, identity, text).to_pydict()), over, interval=interval)
    return lines


def _run_query(service: Service, identity: Identity, text: str) -> pa.Table:
    lent = service.sessions.lend(identity.lake, writes=False)
    try:
        return lent.session.sql(text).to_arrow()
    finally:
        lent.give_back()


def _describe_window(
    first: dt.datetime, last: dt.datetime, window: Window, resolution: str | None, lines: dict[str, Line]
) -> dict[str, Any]:
    return {
        "from": first.isoformat(),
        "to": last.isoformat(),
        "width": window.width,
        "resolution": resolution,
        "lines": {
            name: {
                "times": line.times,
                "values": _finite(line.values),
                "low": line.low and _finite(line.low),
                "high": line.high and _finite(line.high),
            }
            for name, line in lines.items()
        },
    }


def _finite(values: Sequence[float | None]) -> list[float | None]:
    """Return values as JSON has them: it knows no infinity."""
    return [value if value is not None and math.isfinite(value) else None for value in values]


# -- the tree of a pond ------------------------------------------------------------------------------------------------


def tree(at: LakeAt) -> FS:
    """Return the tree of a pond at a snapshot, without ponds that are mounted in it.

    Raise ``NotFoundError`` for a lake that is no pond, and ``NotPermittedError`` for a principal that may not see all
    of the lake.
    """
    from quacklake.pond import backend
    from quacklake.pond.fs import FS
    from quacklake.pond.large_files import LargeFiles

    at.handle.check_whole("the tree of a pond")
    if not backend.exists(at):
        raise NotFoundError("the lake is not a pond", hint="`pond init` makes one")
    return FS(backend.Backend(at, LargeFiles(at.handle.context.store)))


def nodes(fs: FS, pattern: str, after: str | None, most: int, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """Return the nodes that a pattern names after a path, at most so many, and the path to go on after."""
    found = fs.glob(pattern)
    if len(found) > limit:
        raise InputError(f"the pattern names more than {limit} nodes", hint="name a directory: /sensors/*")
    order = [each.path.split("/") for each in found]
    start = 0 if after is None else sum(1 for parts in order if parts <= after.split("/"))
    page = found[start : start + most]
    return [_node(each) for each in page], page[-1].path if start + most < len(found) else None


def _node(found: NodePath) -> dict[str, Any]:
    node = found.node
    return {
        "path": found.path,
        "type": str(node.file_type),
        "looks_like": str(found.entry_type),
        "size": found.size,
        "rows": found.rows,
        "version": node.version,
        "changed": node.timestamp.isoformat(),
    }


_INSIDE = ("config", "source")
"""Facts of a node that may name places outside the pond."""
_MAX_SITE = 1_000_000


def described(fs: FS, path: str, most: int, *, is_admin: bool) -> dict[str, Any]:
    """Return the facts of a node, and its versions, newest first."""
    from quacklake.pond.describing import describe_node
    from quacklake.pond.nodes import ROWS

    found = fs.get(path, follow=False)
    facts = {name: value for name, value in describe_node(fs, found).items() if is_admin or name not in _INSIDE}
    versions = [
        {
            "version": row.version,
            "changed": row.timestamp.isoformat(),
            "rows": row.attribute(ROWS),
            "size": row.size,
            "first": None if row.min_event_time is None else row.min_event_time.isoformat(),
            "last": None if row.max_event_time is None else row.max_event_time.isoformat(),
        }
        for row in found.versions[::-1][:most]
    ]
    site = _site(fs, found)
    more = {} if site is None else {"site": site}
    return {**facts, **more, "history": versions, "more_versions": max(0, len(found.versions) - most)}


def _site(fs: FS, found: NodePath) -> dict[str, Any] | None:
    """Return what a file says of a site; None for one that describes none."""
    from quacklake.pond.nodes import EntryType
    from quacklake.pond.site.export import SITES, find_site

    if not found.path.startswith(f"{SITES}/") or found.node.file_type is not EntryType.DATA:
        return None
    if (found.size or 0) > _MAX_SITE:
        return None
    try:
        _, site = find_site(fs, found.path)
    except QuacklakeError:  # another file
        return None
    return {"title": site.title, "pages": [page.title for page in site.pages], "url": site.site_url or None}
