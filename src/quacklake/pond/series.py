"""Tables and series of a pond: rows go into lake tables that are called by their paths."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from quacklake import faults, telemetry
from quacklake.errors import AlreadyExistsError, InputError, SchemaMismatchError
from quacklake.format.names import fold, quote
from quacklake.format.schema import TableSchema, from_arrow
from quacklake.operations.frames import Input, to_source
from quacklake.operations.input_files import InputFiles
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.nodes import (
    MAX_OVERRIDE,
    MIN_OVERRIDE,
    ROWS,
    SOURCE,
    SOURCE_SHA256,
    TIMESTAMP_COLUMN,
    EntryType,
    Node,
)
from quacklake.pond.paths import table_of
from quacklake.pond.spool import Spool
from quacklake.pond.times import TimeColumn, check_zone, require_column, time_filter
from quacklake.pond.tree import Place

Rows = InputFiles | Any
"""Rows of files, or anything that ``Table.append`` takes."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import: the version it made, and how many rows were added, repeated and put in order."""

    path: str
    entry_type: EntryType
    version: int
    rows: int
    repeated: int = 0
    sorted: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that rows come from."""

    name: str
    sha256: str | None = None

    def attributes(self) -> dict[str, Any]:
        """Return what a node keeps of it."""
        found = {SOURCE: self.name, SOURCE_SHA256: self.sha256}
        return {key: value for key, value in found.items() if value is not None}


NOWHERE = Origin("rows")


def write_table(fs: FS, path: str, rows: Rows, origin: Origin = NOWHERE, *, start: Place | None = None) -> Imported:
    """Make a table of rows. Raises ``AlreadyExistsError`` for a name that is taken; nothing is changed then."""
    place = fs.new_place(path, start=start)
    counted = _Counted(_opened(rows, None))
    _check_case(fs, place.path)
    fs.backend.changes.create_table(table_of(place.path), counted.reader())
    attributes = {ROWS: counted.rows, **origin.attributes()}
    fs.add(place, place.missing[0], EntryType.TABLE, size=counted.bytes, extended_attributes=attributes)
    telemetry.count("pond.rows.written", counted.rows)
    return Imported(place.path, EntryType.TABLE, 1, counted.rows)


def append_series(
    fs: FS,
    path: str,
    rows: Rows,
    options: ImportOptions | None = None,
    origin: Origin = NOWHERE,
    *,
    start: Place | None = None,
) -> Imported:
    """Add rows to a series as its next version, or make the series.

    Rows are stored in the order of time. Rows that the series has already are left out; without any other, no version
    is made. New columns are added, and types widened. Raises ``InputError`` and its kin for rows without times, with
    local times of an unknown zone or times in the future, for two different readings of one time, and for columns whose
    types do not fit; nothing is changed then.
    """
    options = options or ImportOptions()
    place = fs.new_place(path, start=start, replace=EntryType.SERIES)
    old = None if place.missing else fs.get(place.path)
    wanted = options.timestamp_column or (None if old is None else str(old.node.attribute(TIMESTAMP_COLUMN)))
    table = table_of(place.path)
    known = None if old is None else fs.backend.lake.table(table).info.schema
    columns = None if known is None or wanted is None else _without(known, wanted)
    reader = _opened(rows, columns)
    name = require_column(reader.schema.names, wanted, origin.name)
    is_json = isinstance(rows, InputFiles) and rows.found.format == "json"
    if is_json and pa.types.is_timestamp(reader.schema.field(name).type):
        # DuckDB takes the zone away from times in JSON: they are read as the texts that they are
        reader = _opened(rows, _with_text(columns, name))
    zone = None if options.timezone is None else check_zone(options.timezone)
    with Spool(reader, TimeColumn(name, reader.schema.field(name).type, zone), origin.name) as spool:
        if not options.allow_future:
            spool.check_future(dt.datetime.now(dt.UTC))
        if old is not None and _overlaps(old.versions, spool.arrived.first, spool.arrived.last):
            spool.compare(_range(fs, old, spool.arrived.first, spool.arrived.last).to_reader())
        repeated = spool.settle(keep_conflicts=options.keep_conflicts)
        added = spool.arrived.rows - repeated
        if old is not None and not added:
            return Imported(place.path, EntryType.SERIES, old.node.version, 0, repeated)
        counted = _Counted(spool.reader())
        faults.reach("pond.series.append")
        _store(fs, place, old, table, counted, name)
        first, last = spool.bounds() if repeated else (spool.arrived.first, spool.arrived.last)
        is_sorted = not spool.arrived.increasing
    attributes = {TIMESTAMP_COLUMN: name, ROWS: counted.rows, **origin.attributes()}
    values: dict[str, Any] = {"size": counted.bytes, "min_event_time": first, "max_event_time": last}
    if old is None:
        fs.add(place, place.missing[0], EntryType.SERIES, extended_attributes=attributes, **values)
        version = 1
    else:
        version = old.node.version + 1
        bounds = {key: old.node.attribute(key) for key in (MIN_OVERRIDE, MAX_OVERRIDE) if old.node.attribute(key)}
        row = replace(
            old.node,
            version=version,
            timestamp=dt.datetime.now(dt.UTC),
            txn_seq=fs.txn_seq,
            extended_attributes={**attributes, **bounds},
            **values,
        )
        fs.put(place, *old.versions, row)
    telemetry.count("pond.rows.written", counted.rows)
    return Imported(place.path, EntryType.SERIES, version, counted.rows, repeated, is_sorted)


def _store(fs: FS, place: Place, old: NodePath | None, table: str, counted: _Counted, time: str) -> None:
    changes = fs.backend.changes
    if old is not None:
        changes.table(table).append(counted.reader(), evolve=True)
        return
    _check_case(fs, place.path)
    changes.create_table(table, counted.reader())
    # the rows are in order already: only what others add has to be sorted
    changes.table(table).set_sorted_by(quote(time))


def _check_case(fs: FS, path: str) -> None:
    """Refuse a table whose name differs from another's by case only, which SQL could not tell apart."""
    wanted = fold(path)
    for node in fs.tree:
        if node.file_type.has_rows and fold(fs.tree.path(node.node_id)) == wanted:
            raise AlreadyExistsError(
                f"{path} and {fs.tree.path(node.node_id)} differ by case only, and SQL would not tell them apart",
                hint="choose another name",
            )


def _opened(rows: Rows, wanted: TableSchema | None) -> pa.RecordBatchReader:
    if isinstance(rows, InputFiles):
        return rows.read(wanted)
    source: Input = to_source(rows)
    opened = source.opened(wanted)
    if opened.stream is not None:
        return opened.stream
    assert opened.table is not None
    if not opened.schema.names:
        raise SchemaMismatchError("the rows have no columns")
    return opened.table.to_reader()


def _without(schema: TableSchema, time: str) -> TableSchema:
    """Return the columns of a series but for the time, which may be written in another way each time."""
    return replace(schema, columns=tuple(column for column in schema.columns if fold(column.name) != fold(time)))


def _with_text(schema: TableSchema | None, time: str) -> TableSchema:
    """Return columns with the time as a text."""
    text = from_arrow(pa.schema([(time, pa.string())]))
    return text if schema is None else replace(schema, columns=(*schema.columns, *text.columns))


def _overlaps(versions: tuple[Node, ...], first: dt.datetime | None, last: dt.datetime | None) -> bool:
    if first is None or last is None:
        return False
    return any(
        row.min_event_time is not None
        and row.max_event_time is not None
        and row.min_event_time <= last
        and first <= row.max_event_time
        for row in versions
    )


def bounds_of(node: Node) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return the times between which the rows of a series are shown, where they were set by hand."""
    texts = (node.attribute(MIN_OVERRIDE), node.attribute(MAX_OVERRIDE))
    first, last = (None if text is None else dt.datetime.fromisoformat(text) for text in texts)
    return first, last


def _range(fs: FS, found: NodePath, first: dt.datetime | None, last: dt.datetime | None) -> Any:
    column = str(found.node.attribute(TIMESTAMP_COLUMN))
    return fs.backend.lake.table(table_of(found.path)).scan(where=time_filter(column, first, last))


def set_temporal_bounds(fs: FS, path: str, first: dt.datetime | None, last: dt.datetime | None) -> NodePath:
    """Show only the rows of a series between two times; None lifts a bound. The rows stay."""
    found = fs.get(path)
    if found.node.file_type is not EntryType.SERIES:
        raise InputError(f"{found.path} is a {found.entry_type}, not a series")
    if first is not None and last is not None and first > last:
        raise InputError("the first time is after the last")
    bounds = {MIN_OVERRIDE: first, MAX_OVERRIDE: last}
    texts = {key: value.isoformat() for key, value in bounds.items() if value is not None}
    rows = [
        replace(
            row,
            extended_attributes={k: v for k, v in row.extended_attributes.items() if k not in bounds} | texts,
            txn_seq=fs.txn_seq,
        )
        for row in found.versions
    ]
    fs.put(found.place, *rows)
    return fs.get(found.path)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two versions of a series that cover the same time."""

    path: str
    first_version: int
    second_version: int
    begin: dt.datetime
    end: dt.datetime


def overlaps(found: NodePath) -> Iterator[Overlap]:
    """Yield the pairs of versions of a series whose times overlap."""
    open_: list[Node] = []
    timed = [row for row in found.versions if row.min_event_time is not None and row.max_event_time is not None]
    for row in sorted(timed, key=lambda each: (each.min_event_time, each.version)):
        assert row.min_event_time is not None
        assert row.max_event_time is not None
        open_ = [each for each in open_ if each.max_event_time and each.max_event_time >= row.min_event_time]
        for each in open_:
            assert each.max_event_time is not None
            low, high = sorted((each.version, row.version))
            yield Overlap(found.path, low, high, row.min_event_time, min(each.max_event_time, row.max_event_time))
        open_.append(row)


class _Counted:
    """Rows that are counted while they are written."""

    def __init__(self, rows: pa.RecordBatchReader) -> None:
        self._rows = rows
        self.rows = self.bytes = 0

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._rows.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            self.rows += batch.num_rows
            self.bytes += batch.nbytes
            yield batch
