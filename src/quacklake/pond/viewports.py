"""Viewports: the points of a series that a picture of a range of time shows, from the resolution that suits it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quacklake.errors import InputError, NotFoundError, nearest
from quacklake.extend.names import quote
from quacklake.pond import reduces
from quacklake.pond.downsampling import Line, Range, buckets_query, choose, of_rows
from quacklake.pond.factories.temporal_reduce import ReducedOptions
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.nodes import ROWS, TIMESTAMP_COLUMN, EntryType
from quacklake.pond.paths import table_of
from quacklake.pond.pond import Pond
from quacklake.pond.queries import Relations, no_rows, relations
from quacklake.pond.reductions import Reduction
from quacklake.pond.series import bounds_of
from quacklake.pond.times import require_column

WIDEST = 20_000
_CHEAP = 8
"""A range with fewer readings a pixel than this is read from the series itself."""
_MICRO = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def micros(moment: dt.datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - _EPOCH) // _MICRO


def moment(since: int) -> dt.datetime:
    """Return the time that is so many microseconds after 1970."""
    return _EPOCH + since * _MICRO


@dataclass(frozen=True, slots=True)
class Viewport:
    """The points of some columns of a series in a range. ``resolution`` is None when they are readings."""

    path: str
    start: dt.datetime
    end: dt.datetime
    width: int
    resolution: str | None
    lines: Mapping[str, Line]

    def to_arrow(self) -> pa.Table:
        """Return the points as rows: column, time, value, low and high."""
        rows: dict[str, list[Any]] = {"column": [], "time": [], "value": [], "low": [], "high": []}
        for name, line in self.lines.items():
            rows["column"] += [name] * len(line)
            rows["time"] += line.times
            rows["value"] += line.values
            rows["low"] += line.low or [None] * len(line)
            rows["high"] += line.high or [None] * len(line)
        number = pa.float64()
        types = [pa.string(), pa.timestamp("us", "UTC"), number, number, number]
        return pa.table({name: pa.array(rows[name], type_) for name, type_ in zip(rows, types, strict=True)})


@dataclass(frozen=True, slots=True)
class Source:
    """The place that points are read from: the series, or one of its reductions."""

    found: NodePath
    time: str
    reduction: Reduction | None = None

    def columns(self, column: str) -> tuple[str, str | None, str | None]:
        """Return the value of a column, and what is known as its bounds, as SQL."""
        if self.reduction is None:
            return quote(column), None, None
        kinds = {name.rpartition(".")[2] for name in self.reduction.columns([column])}
        value = "avg" if "avg" in kinds else "max"
        names = (quote(f"{column}.{kind}") if kind in kinds else None for kind in ("min", "max"))
        return quote(f"{column}.{value}"), *names  # type: ignore[return-value]


def viewport(
    pond: Pond,
    path: str,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    width: int = 1000,
    columns: Sequence[str] | None = None,
    *,
    at: int | str | None = None,
) -> Viewport:
    """Return the points of a series for a picture ``width`` pixels wide; without times, of all of it.

    The points come from the series, or from the coarsest of its reductions that has a bucket for each pixel, and
    MinMaxLTTB chooses among them. Raise ``InputError`` for what has no times or no such column.
    """
    if not 1 <= width <= WIDEST:
        raise InputError(f"a picture is between 1 and {WIDEST} pixels wide, not {width}")
    if start is not None and end is not None and start > end:
        raise InputError("the first time is after the last")
    fs = pond.fs(at)
    found = fs.get(path)
    if not found.entry_type.has_rows:
        raise no_rows(found)
    if at is None and not pond.read_only:
        reduces.refresh(pond, fs, found)
    with relations(pond, at) as opened:
        schema = _schema(fs, opened, found)
        time = str(found.node.attribute(TIMESTAMP_COLUMN) or "") or require_column(schema.names, None, found.path)
        names = columns_of(schema, time, columns, found.path)
        first, last = (start, end) if start is not None and end is not None else extent(opened, found, time)
        first, last = start or first or _EPOCH, end or last or _EPOCH
        over = Range(micros(first), max(micros(last), micros(first)), width)
        source = source_of(fs, found, time, names, over)
        way = reduces.refresh(pond, fs, source.found) if source.reduction is not None and at is None else None
        if way in (None, "none"):
            lines = {name: _line(opened, source, name, over) for name in names}
    if way not in (None, "none"):
        with relations(pond) as opened:  # at the snapshot that the refresh has made
            lines = {name: _line(opened, source, name, over) for name in names}
    text = None if source.reduction is None else source.reduction.resolution.text
    return Viewport(found.path, first, last, width, text, lines)


def _schema(fs: FS, opened: Relations, found: NodePath) -> pa.Schema:
    if found.node.file_type.has_rows:
        return fs.backend.lake.table(table_of(found.path)).info.schema.to_arrow()
    return opened.tx.sql(f"SELECT * FROM {opened.name(found)} LIMIT 0").to_arrow().schema


def columns_of(schema: pa.Schema, time: str, wanted: Sequence[str] | None, path: str) -> list[str]:
    """Return the columns of numbers to draw: the wanted ones, or all. Raise ``NotFoundError`` and ``InputError``."""
    numbers = reduces.numbers_of(schema, time)
    for name in wanted or ():
        if name not in numbers:
            raise NotFoundError(f"{path} has no column of numbers {name!r}", hint=nearest(name, numbers))
    if not numbers:
        raise InputError(f"{path} has no column of numbers")
    return list(wanted or numbers)


def extent(opened: Relations, found: NodePath, time: str) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return the first and last time of a series: from its versions, or of a computed one from its rows."""
    if found.node.file_type is not EntryType.SERIES:
        query = f"SELECT min({quote(time)}) AS a, max({quote(time)}) AS b FROM {opened.shown(found)}"
        row = opened.tx.sql(query).to_arrow().to_pylist()[0]
        return row["a"], row["b"]
    low, high = bounds_of(found.node)
    firsts = [row.min_event_time for row in found.versions if row.min_event_time is not None]
    lasts = [row.max_event_time for row in found.versions if row.max_event_time is not None]
    first, last = min(firsts, default=None), max(lasts, default=None)
    first = first if low is None or first is None else max(first, low)
    last = last if high is None or last is None else min(last, high)
    return first, last


def source_of(fs: FS, found: NodePath, time: str, names: Sequence[str], over: Range) -> Source:
    """Return the series when it has few readings in a range, else its coarsest reduction with enough buckets."""
    itself = Source(found, time)
    if found.node.file_type is not EntryType.SERIES or readings(found, over) <= _CHEAP * over.width:
        return itself
    pixel = (over.end - over.start) / over.width
    best: Source | None = None
    for node, options in _reductions(fs, found):
        reduction = options.reduction
        fits = reduction.resolution.width / _MICRO <= pixel
        has_all = all({"avg", "max"} & {kind for kind, _ in reduction.columns([name]).values()} for name in names)
        if fits and has_all and (best is None or reduction.resolution.width > _width(best)):
            best = Source(node, options.time_column or time, reduction)
    return best or itself


def _width(source: Source) -> dt.timedelta:
    assert source.reduction is not None
    return source.reduction.resolution.width


def _reductions(fs: FS, found: NodePath) -> list[tuple[NodePath, ReducedOptions]]:
    every = ((node, reduces.options_of(node)) for node in reduces.reduced_nodes(fs))
    return [(node, options) for node, options in every if options is not None and options.source == found.path]


def readings(found: NodePath, over: Range) -> int:
    """Return about how many readings a stored series has in a range, from what is known of its versions."""
    total = 0.0
    for row in found.versions:
        if row.min_event_time is None or row.max_event_time is None:
            continue
        first, last = micros(row.min_event_time), micros(row.max_event_time)
        shared = min(last, over.end) - max(first, over.start) + 1
        if shared > 0:
            total += (row.attribute(ROWS) or 0) * shared / (last - first + 1)
    return int(total)


def interval_of(found: NodePath) -> int | None:
    """Return the distance of the rows of a reduction; None for anything else."""
    options = reduces.options_of(found)
    return None if options is None else options.reduction.resolution.width // _MICRO


def _line(opened: Relations, source: Source, column: str, over: Range) -> Line:
    interval = interval_of(source.found)
    if source.reduction is not None:
        # the bucket that holds the first time begins before it
        over = Range(over.start - (interval or 0), over.end, over.width)
    rows = opened.shown(source.found, moment(over.start), moment(over.end))
    value, low, high = source.columns(column)
    query = buckets_query(rows, f"epoch_us({quote(source.time)})", value, over, low, high)
    return choose(of_rows(opened.tx.sql(query).to_arrow().to_pydict()), over, interval=interval)
