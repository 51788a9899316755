"""Tables and series of a pond: rows go into lake tables that are called by their paths."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from quacklake import telemetry
from quacklake.errors import AlreadyExistsError, InputError, SchemaMismatchError
from quacklake.extend import reporting
from quacklake.extend.inputs import InputFiles, open_rows
from quacklake.extend.names import fold, quote
from quacklake.extend.schemas import Column, TableSchema, to_schema
from quacklake.pond import bulk
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.nodes import (
    KEEPS_CONFLICTS,
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
from quacklake.pond.spool import FUTURE, Spool
from quacklake.pond.times import TimeColumn, check_zone, is_zoned, require_column, time_filter
from quacklake.pond.tree import Place
from quacklake.pond.widening import advise, change_types, takes_fractions

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
    """The file that rows come from. Its hash may be something to wait for: large files are hashed during the import."""

    name: str
    sha256: str | Callable[[], str] | None = None

    def attributes(self) -> dict[str, Any]:
        """Return what a node keeps of it."""
        found = {SOURCE: self.name, SOURCE_SHA256: self.sha256() if callable(self.sha256) else self.sha256}
        return {key: value for key, value in found.items() if value is not None}


NOWHERE = Origin("rows")


def write_table(fs: FS, path: str, rows: Rows, origin: Origin = NOWHERE, *, start: Place | None = None) -> Imported:
    """Make a table of rows. Raise ``AlreadyExistsError`` for a name that is taken; nothing is changed then."""
    place = fs.new_place(path, start=start)
    counted = _Counted(_open_rows(rows, None))
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
    is made. New columns are added, and types widened: a column that began with whole numbers takes decimals from then
    on (``widen_column`` changes other types). Raise ``InputError`` and its kin for rows without times, with
    local times of an unknown zone or times in the future, for two different readings of one time, and for columns whose
    types do not fit; nothing is changed then.
    """
    options = options or ImportOptions()
    place = fs.new_place(path, start=start, replace=EntryType.SERIES)
    old = None if place.missing else fs.get(place.path)
    wanted = options.timestamp_column or (None if old is None else str(old.node.attribute(TIMESTAMP_COLUMN)))
    known = None if old is None else fs.backend.lake.table(table_of(place.path)).info.schema
    columns = None if known is None or wanted is None else _without(known, wanted)
    zone = None if options.timezone is None else check_zone(options.timezone)
    adding = _Adding(fs, place, old, options, origin, wanted, columns, zone)
    try:
        added = (adding.at_once(rows) if isinstance(rows, InputFiles) else None) or adding.by_spool(rows)
    except InputError as error:
        advice = adding.advice(rows)
        if advice is not None and advice not in (error.hint or ""):
            error.hint = f"{error.hint}; {advice}" if error.hint else advice
        raise
    return adding.noted(added)


@dataclass(frozen=True, slots=True)
class _Added:
    """Rows that were stored, and what was done with them on the way."""

    time: str
    rows: int
    bytes: int
    first: dt.datetime | None
    last: dt.datetime | None
    repeated: int = 0
    sorted: bool = False


@dataclass(frozen=True)
class _Adding:
    """One import into a series: ``old`` is None for a new one, ``columns`` are those it has but for the time."""

    fs: FS
    place: Place
    old: NodePath | None
    options: ImportOptions
    origin: Origin
    wanted: str | None
    columns: TableSchema | None
    zone: str | None

    @property
    def table(self) -> str:
        return table_of(self.place.path)

    def at_once(self, files: InputFiles) -> _Added | None:
        """Store a large file the short way; None when it has to go the long one."""
        plan = bulk.plan(files, self.wanted, self.zone, self.columns)
        if plan is None:
            return None
        latest = None if self.options.allow_future else dt.datetime.now(dt.UTC) + FUTURE

        def accepts(found: bulk.Bulk) -> bool:
            ahead = latest is not None and found.last is not None and found.last > latest
            return not ahead and not (self.old and _overlaps(self.old.versions, found.first, found.last))

        reporting.reach("pond.series.append")
        if self.old is None:
            self._create(plan.schema, plan.time)
        done = bulk.write(self.fs, self.table, plan, accepts)
        if done is None:
            if self.old is None:
                self.fs.backend.changes.drop_table(self.table)
            return None
        texts = (field.name for field in plan.schema if pa.types.is_string(field.type))
        files.note_missing_values(name for name in texts if self.columns is None or self.columns.get(name) is None)
        return _Added(plan.time, done.rows, done.bytes, done.first, done.last)

    def by_spool(self, rows: Rows) -> _Added:
        """Store rows the long way: checked, put in order, without those that the series has already."""
        columns = self.columns
        if isinstance(rows, InputFiles) and columns is not None:
            fractions = rows.fractions(columns)
            columns = replace(columns, columns=tuple(each for each in columns.columns if each.name not in fractions))
        reader = _open_rows(rows, columns)
        name = require_column(reader.schema.names, self.wanted, self.origin.name)
        if isinstance(rows, InputFiles) and _may_lose_zones(rows, reader.schema.field(name)):
            reader = _open_rows(rows, _with_text(columns, name))
        old = self.old
        where = {"where": rows.where} if isinstance(rows, InputFiles) else {}
        time = TimeColumn(name, reader.schema.field(name).type, self.zone, self.options.local)
        with Spool(reader, time, self.origin.name, **where) as spool:
            came = spool.arrived
            if not self.options.allow_future:
                spool.check_future(dt.datetime.now(dt.UTC))
            if old is not None and _overlaps(old.versions, came.first, came.last):
                spool.compare(_range(self.fs, old, came.first, came.last).to_reader())
            repeated = spool.settle(keep_conflicts=self.options.keep_conflicts)
            if old is not None and came.rows == repeated:
                return _Added(name, 0, 0, None, None, repeated)
            counted = _Counted(spool.reader())
            reporting.reach("pond.series.append")
            if old is None:
                self._create(counted.reader(), name)
            else:
                self._widen(reader.schema)
                self.fs.backend.changes.table(self.table).append(counted.reader(), evolve=True)
            first, last = spool.bounds() if repeated else (came.first, came.last)
        return _Added(name, counted.rows, counted.bytes, first, last, repeated, not came.increasing)

    def advice(self, rows: Rows) -> str | None:
        """Return the command that lets the series take files with texts for its numbers or times; None without any."""
        if self.columns is None or not isinstance(rows, InputFiles):
            return None
        try:
            unfit = [column for column, new in self._unfit(rows.schema()) if new.type == "varchar"]
        except InputError:
            return None  # files that cannot be read have no types
        return next((self._advice(column) for column in unfit if _is_measure(column)), None)

    def _advice(self, column: Column) -> str:
        return f"{advise(self.place.path, column.name)} makes {column.name} a column of text"

    def _unfit(self, rows: pa.Schema) -> Iterator[tuple[Column, Column]]:
        """Yield the columns of the series whose types cannot hold those of rows, each with the column of the rows."""
        for column, new in self._shared_columns(rows):
            fits = pa.types.is_null(rows.field(new.name).type) or column.can_store(new)
            if not (fits or _widens(column, new)):
                yield column, new

    def _shared_columns(self, rows: pa.Schema) -> Iterator[tuple[Column, Column]]:
        """Yield the columns that the series and rows both have, without nested ones."""
        assert self.columns is not None
        given = {fold(column.name): column for column in to_schema(rows).columns}
        for column in self.columns.columns:
            new = given.get(fold(column.name))
            if new is not None and not (column.nested or new.nested):
                yield column, new

    def _widen(self, rows: pa.Schema) -> None:
        """Let columns of whole numbers take decimals. Raise ``SchemaMismatchError`` for types that do not fit."""
        for column, new in self._unfit(rows):
            raise SchemaMismatchError(
                f'the column "{column.name}" of {self.place.path} is {column.duckdb_type()}, and that of '
                f"{self.origin.name} is {new.duckdb_type()}",
                hint=self._advice(column),
            )
        decimals = {
            column.name: replace(column, type="float64")
            for column, new in self._shared_columns(rows)
            if _widens(column, new)
        }
        if decimals:
            change_types(self.fs, self.place.path, decimals)

    def _create(self, rows: pa.RecordBatchReader | pa.Schema, time: str) -> None:
        _check_case(self.fs, self.place.path)
        self.fs.backend.changes.create_table(self.table, rows)
        # the rows are in order already: only what others add has to be sorted
        self.fs.backend.changes.table(self.table).set_sorted_by(quote(time))

    def noted(self, added: _Added) -> Imported:
        """Note the version in the tree."""
        fs, place, old = self.fs, self.place, self.old
        if old is not None and not added.rows:
            return Imported(place.path, EntryType.SERIES, old.node.version, 0, added.repeated)
        attributes = {TIMESTAMP_COLUMN: added.time, ROWS: added.rows, **self.origin.attributes()}
        if self.options.keep_conflicts or (old is not None and old.node.attribute(KEEPS_CONFLICTS)):
            attributes[KEEPS_CONFLICTS] = True
        values: dict[str, Any] = {"size": added.bytes, "min_event_time": added.first, "max_event_time": added.last}
        version = 1 if old is None else old.node.version + 1
        if old is None:
            fs.add(place, place.missing[0], EntryType.SERIES, extended_attributes=attributes, **values)
        else:
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
        telemetry.count("pond.rows.written", added.rows)
        return Imported(place.path, EntryType.SERIES, version, added.rows, added.repeated, added.sorted)


def _widens(column: Column, new: Column) -> bool:
    """Return whether a column of whole numbers becomes one of decimals to hold another."""
    return pa.types.is_integer(column.arrow_type()) and takes_fractions(new)


def _is_measure(column: Column) -> bool:
    """Return whether a column holds numbers, times or truth values, which are not read from any text."""
    type_ = column.arrow_type()
    numeric = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    return bool(numeric or pa.types.is_temporal(type_) or pa.types.is_boolean(type_))


def _check_case(fs: FS, path: str) -> None:
    """Refuse a table whose name differs from another's by case only, which SQL could not tell apart."""
    wanted = fold(path)
    for node in fs.tree:
        if node.file_type.has_rows and fold(fs.tree.path(node.node_id)) == wanted:
            raise AlreadyExistsError(
                f"{path} and {fs.tree.path(node.node_id)} differ by case only, and SQL would not tell them apart",
                hint="choose another name",
            )


def _open_rows(rows: Rows, wanted: TableSchema | None) -> pa.RecordBatchReader:
    opened = open_rows(rows, wanted)
    if not opened.schema.names:
        raise SchemaMismatchError("the rows have no columns")
    return opened


def _without(schema: TableSchema, time: str) -> TableSchema:
    """Return the columns of a series but for the time, which may be written in another way each time."""
    return replace(schema, columns=tuple(column for column in schema.columns if fold(column.name) != fold(time)))


def _with_text(schema: TableSchema | None, time: str) -> TableSchema:
    """Return columns with the time as a text."""
    text = to_schema({time: str})
    return text if schema is None else replace(schema, columns=(*schema.columns, *text.columns))


def _may_lose_zones(files: InputFiles, time: pa.Field) -> bool:
    """Return whether times have to be read as the texts that they are.

    DuckDB takes the zone away from times in JSON. In a CSV file it takes a time without a zone for one of UTC when
    others have a zone, and ignores the name of a zone when others have none.
    """
    if not pa.types.is_timestamp(time.type) or files.found.format not in ("csv", "json"):
        return False
    if files.found.format == "json":
        return True
    if files.csv.timestamp_format is not None:
        return False  # the format says whether there is a zone
    zoned = is_zoned(quote(time.name))
    return files.first_where(time.name, zoned if time.type.tz is None else f"NOT {zoned}") is not None


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
