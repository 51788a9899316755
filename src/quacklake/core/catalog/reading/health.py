"""Reading facts about tables: their health, whole metadata tables, the bounds of files, and what a catalog uses."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import CatalogStatements, delete_table, inlined_lives, visible
from quacklake.core.catalog.tables import Flag, Id, Instant
from quacklake.core.format.inline import parse_table_name
from quacklake.core.format.snapshots import Snapshot, parse_time

_PREFIX = "ducklake_"
_TIME = pa.timestamp("us", tz="UTC")
_STEP = 8
"""So many times larger are the files of one class of sizes than those of the next."""
_CLASSES = 4
_UNION = 100
"""Most inlined tables that one statement asks for."""


@dataclass(frozen=True, slots=True)
class TableHealth:
    """Numbers that say whether a table needs maintenance.

    ``small`` counts the files without deletes below ``small_size`` by class, each up to an eighth of the one before;
    ``chipped`` those with deletes. ``worn_files`` have lost more than the given share of their rows. ``inlined_rows``
    counts deleted ones too, ``live_inlined_rows`` those that a reader sees; ``inlined_since`` is the snapshot of the
    oldest.
    """

    table_id: int
    files: int = 0
    bytes: int = 0
    worn_files: int = 0
    small_size: int = 0
    small: tuple[int, ...] = ()
    chipped: tuple[int, ...] = ()
    inlined_rows: int = 0
    live_inlined_rows: int = 0
    inlined_since: int | None = None

    def class_size(self, number: int) -> int:
        """Return the size that files of a class do not reach."""
        return int(self.small_size // _STEP**number)


def table_health(
    reader: Reader, snapshot: Snapshot, *, small: int, small_of: Mapping[int, int], worn: float
) -> dict[int, TableHealth]:
    """Return the health of tables that have rows.

    Files below ``small`` bytes (``small_of`` for some tables) are small; files that lost the share ``worn`` are worn.
    """
    tables = {}
    statement = _select_health(reader, snapshot, small, small_of, worn)
    for id_, files, size, worn_files, *counts in reader.run("health", statement):
        clean, chipped = _by_class(counts[:_CLASSES]), _by_class(counts[_CLASSES:])
        tables[id_] = TableHealth(id_, files, size, worn_files, small_of.get(id_, small), clean, chipped)
    for table_id, rows, since, live in _inlined_health(reader, snapshot):
        known = tables.get(table_id) or TableHealth(table_id)
        oldest = since if known.inlined_since is None else min(known.inlined_since, since)
        rows, live = known.inlined_rows + rows, known.live_inlined_rows + live
        tables[table_id] = replace(known, inlined_rows=rows, live_inlined_rows=live, inlined_since=oldest)
    return tables


def _select_health(
    reader: Reader, snapshot: Snapshot, small: int, small_of: Mapping[int, int], worn: float
) -> sa.Select[tuple[Any, ...]]:
    f, d = reader.meta["data_file"], reader.meta["delete_file"]
    limit: Any = sa.case(dict(small_of), value=f.c.table_id, else_=small) if small_of else small
    mine = sa.and_(d.c.table_id == f.c.table_id, d.c.data_file_id == f.c.data_file_id)
    deletes = sa.and_(mine, visible(d, snapshot.id))
    clean, chipped = d.c.delete_file_id.is_(None), d.c.delete_count > 0
    is_worn = sa.and_(chipped, d.c.delete_count >= worn * f.c.record_count)
    small_files = [f.c.file_size_bytes * _STEP**number < limit for number in range(_CLASSES)]
    return (
        sa.select(
            f.c.table_id,
            sa.func.count(),
            sa.cast(sa.func.sum(f.c.file_size_bytes), sa.BigInteger),
            _number_of(is_worn),
            *(_number_of(sa.and_(clean, is_small)) for is_small in small_files),
            *(_number_of(sa.and_(chipped, is_small)) for is_small in small_files),
        )
        .select_from(f.outerjoin(d, deletes))
        .where(visible(f, snapshot.id))
        .group_by(f.c.table_id)
    )


def _inlined_health(reader: Reader, snapshot: Snapshot) -> Sequence[tuple[int, int, int, int]]:
    t, owner = reader.meta["inlined_data_tables"], reader.meta["table"]
    alive = t.join(owner, sa.and_(owner.c.table_id == t.c.table_id, visible(owner, snapshot.id)))
    known = reader.run("inlined_names", sa.select(t.c.table_id, t.c.schema_version).select_from(alive)).all()
    counted: list[tuple[int, int, int, int]] = []
    for start in range(0, len(known), _UNION):
        counts = []
        for table_id, version in known[start : start + _UNION]:
            table = reader.inlined.lives(table_id, version)
            figures = sa.func.count(), sa.func.min(table.c.begin_snapshot), _number_of(visible(table, snapshot.id))
            counts.append(sa.select(sa.literal(table_id), *figures).select_from(table))
        rows = reader.run("inlined_health", sa.union_all(*counts))
        counted += [(row[0], row[1], row[2], row[3]) for row in rows if row[1]]
    return counted


def scheduled_files(reader: Reader, before: dt.datetime) -> int:
    """Return how many files have waited for their removal since a time."""
    t = reader.meta["files_scheduled_for_deletion"]
    waiting = sa.select(sa.func.count()).select_from(t).where(t.c.schedule_start <= before)
    return int(reader.run("scheduled_files", waiting).scalar_one())


def _by_class(counts: Sequence[int]) -> tuple[int, ...]:
    """Return how many files each class has, where each count has those of the later ones in it."""
    return tuple(count - smaller for count, smaller in zip(counts, [*counts[1:], 0], strict=True))


def _number_of(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.cast(sa.func.sum(sa.case((condition, 1), else_=0)), sa.BigInteger)


def metadata_table(reader: CatalogStatements, name: str) -> pa.Table | None:
    """Return the rows of a metadata table by its full name, one of inlined rows too; None when there is none."""
    known = reader.meta.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    if known is not None:
        # duckdb returns times only with packages that may not be installed
        chosen = [sa.cast(c, sa.String) if isinstance(c.type, Instant) else c for c in known.columns]
        result = reader.run("metadata_table", sa.select(*chosen))
        return _as_table([c.name for c in known.columns], result, [_arrow(c.type) for c in known.columns])
    schema = reader.meta.metadata.schema
    if reader.meta.shared:  # inlined rows, which are packed, or deletes
        named = parse_table_name(name)
        if named is None:
            return None
        id_, version = named
        table = delete_table(id_, reader.meta) if version is None else inlined_lives(id_, version, reader.meta, "")
        return _as_table([c.name for c in table.c], reader.run("metadata_table", sa.select(*table.c)))
    if name not in sa.inspect(reader.connection).get_table_names(schema=schema):
        return None
    every: sa.Select[Any] = sa.select(sa.text("*")).select_from(sa.table(name, schema=schema))
    result = reader.run("metadata_table", every)
    return _as_table(list(result.keys()), result)


def _as_table(names: Sequence[str], result: sa.CursorResult[*tuple[Any, ...]], types: Sequence[Any] = ()) -> pa.Table:
    columns = [list(values) for values in zip(*result.all(), strict=True)] or [[] for _ in names]
    arrays = map(_cast_values, columns, types) if types else map(_array, columns)
    return pa.table(dict(zip(names, arrays, strict=True)))


def column_statistics(reader: CatalogStatements, snapshot: Snapshot, table_id: int) -> dict[int, list[dict[str, Any]]]:
    """Return the statistics of the columns in the files of a table at a snapshot, by file."""
    stats, files = reader.meta["file_column_stats"], reader.meta["data_file"]
    names = ("column_id", "value_count", "null_count", "min_value", "max_value", "contains_nan")
    mine = sa.and_(files.c.data_file_id == stats.c.data_file_id, files.c.table_id == table_id)
    statement = (
        sa.select(stats.c.data_file_id, *(stats.c[name] for name in names))
        .join(files, sa.and_(mine, visible(files, snapshot.id)))
        .where(stats.c.table_id == table_id)
        .order_by(stats.c.data_file_id, stats.c.column_id)
    )
    statistics: dict[int, list[dict[str, Any]]] = {}
    for id_, *values in reader.run("column_statistics", statement):
        statistics.setdefault(id_, []).append(dict(zip(names, values, strict=True)))
    return statistics


def file_bounds(
    reader: CatalogStatements, snapshot: Snapshot, table_id: int, column_ids: Sequence[int]
) -> dict[tuple[int, int], tuple[str | None, str | None, int | None, bool]]:
    """Return least and greatest value and number of nulls of columns in the files of a table, by file and column.

    Last comes whether both bounds are values of the column, which 1.0 does not tell: there they are, unless cut.
    """
    stats, files = reader.meta["file_column_stats"], reader.meta["data_file"]
    mine = sa.and_(files.c.data_file_id == stats.c.data_file_id, files.c.table_id == table_id)
    names = "data_file_id column_id min_value max_value null_count min_is_exact max_is_exact"
    statement = (
        sa.select(*reader.meta.columns("file_column_stats", names))
        .join(files, sa.and_(mine, visible(files, snapshot.id)))
        .where(stats.c.table_id == table_id, stats.c.column_id.in_(column_ids))
    )
    rows = reader.run("file_bounds", statement).all()
    is_known = ("file_column_stats", "min_is_exact") in reader.meta.parts
    return {(row[0], row[1]): (row[2], row[3], row[4], not is_known or bool(row[5] and row[6])) for row in rows}


def _cast_values(values: list[Any], type_: pa.DataType) -> pa.Array:
    if type_ == _TIME:
        values = [None if value is None else parse_time(str(value)) for value in values]
    return pa.array(values, type_)


def _arrow(type_: Any) -> pa.DataType:
    if isinstance(type_, Id):
        return pa.int64()
    if isinstance(type_, Flag):
        return pa.bool_()
    return _TIME if isinstance(type_, Instant) else pa.string()


def _array(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values) if any(value is not None for value in values) else pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a catalog before a commit, as far as it is requested.

    ``bytes`` is never too low. ``paced`` is the time of the oldest of the last commits.
    """

    snapshots: int | None = None
    tables: int | None = None
    bytes: int | None = None
    paced: dt.datetime | None = None


def usage(reader: Reader, *, snapshots: bool, tables: bool, size: bool, commits: int | None) -> Usage:
    """Return the usage that is asked for, in one statement; ``commits`` is how many of the last to look back at."""
    wanted = (snapshots, tables, size, commits is not None)
    statement = reader.cached(("usage", *wanted), lambda: _statement(reader, *wanted))
    row = reader.run("usage", statement, None if commits is None else {"before": commits - 1}).one()
    values = iter(row)
    snapshot_count, table_count, sum_of_bytes = (int(next(values) or 0) if asked else None for asked in wanted[:3])
    return Usage(snapshot_count, table_count, sum_of_bytes, next(values) if wanted[3] else None)


def _statement(reader: Reader, snapshots: bool, tables: bool, size: bool, commits: bool) -> sa.Select[Any]:
    s, t, sums = reader.meta["snapshot"], reader.meta["table"], reader.meta["table_stats"]
    parts: list[Any] = []
    if snapshots:
        parts.append(sa.select(sa.func.count()).select_from(s))
    if tables:
        parts.append(sa.select(sa.func.count()).select_from(t).where(t.c.end_snapshot.is_(None)))
    if size:
        live = sums.join(t, sa.and_(t.c.table_id == sums.c.table_id, t.c.end_snapshot.is_(None)))
        parts.append(sa.select(sa.func.sum(sums.c.file_size_bytes)).select_from(live))
    if commits:
        time = reader.snapshots.columns()[1]
        last = sa.select(time).where(s.c.snapshot_id > 0).order_by(s.c.snapshot_id.desc())
        parts.append(last.limit(1).offset(sa.bindparam("before", type_=sa.BigInteger())))
    return sa.select(*(part.scalar_subquery() for part in parts))


def live_bytes(reader: Reader) -> int:
    """Return the bytes of the data files that are there now, those of the commit itself among them."""
    f = reader.meta["data_file"]
    statement = sa.select(sa.func.sum(f.c.file_size_bytes)).where(f.c.end_snapshot.is_(None))
    return int(reader.run("live_bytes", statement).scalar() or 0)


def bytes_at(reader: Reader, snapshot: int) -> int:
    """Return the bytes of the data files that a snapshot sees."""
    f = reader.meta["data_file"]
    statement = sa.select(sa.func.sum(f.c.file_size_bytes)).where(visible(f, snapshot))
    return int(reader.run("bytes_at", statement).scalar() or 0)
