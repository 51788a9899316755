"""Whole metadata tables, with the types they have on every database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from quacklake.catalog.columns import Flag, Id, Instant
from quacklake.catalog.inlined import delete_table, inlined_lives
from quacklake.catalog.statements import CatalogStatements
from quacklake.format.inline import parse_table_name
from quacklake.format.snapshots import Snapshot, parse_time

_PREFIX = "ducklake_"
_TIME = pa.timestamp("us", tz="UTC")


def metadata_table(reader: CatalogStatements, name: str) -> pa.Table | None:
    """Return the rows of a metadata table by its full name, one of inlined rows too; None when there is none."""
    known = reader._t.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    if known is not None:
        types = {column.name: _arrow(column.type) for column in known.columns}
        # duckdb returns times only with packages that may not be installed
        chosen = [sa.cast(c, sa.String) if isinstance(c.type, Instant) else c for c in known.columns]
        rows = reader.run("metadata_table", sa.select(*chosen)).all()
        columns = zip(*rows, strict=True) if rows else ((),) * len(types)
        return pa.table({n: _typed(list(values), types[n]) for n, values in zip(types, columns, strict=True)})
    schema = reader._t.metadata.schema
    if reader._t.shared:
        return _shared_table(reader, name)
    if name not in sa.inspect(reader._connection).get_table_names(schema=schema):
        return None
    table = sa.table(name, schema=schema)
    result = reader.run("metadata_table", sa.select(sa.text("*")).select_from(table))
    names = list(result.keys())
    arrays = [list(values) for values in zip(*result.all(), strict=True)] or [[] for _ in names]
    return pa.table({n: _array(values) for n, values in zip(names, arrays, strict=True)})


def _shared_table(reader: CatalogStatements, name: str) -> pa.Table | None:
    """Return inlined rows or deletes of a shared lake by the name that a table for them would have; rows are packed."""
    named = parse_table_name(name)
    if named is None:
        return None
    table_id, version = named
    table = delete_table(table_id, reader._t) if version is None else inlined_lives(table_id, version, reader._t, "")
    rows = reader.run("metadata_table", sa.select(*table.c)).all()
    columns = zip(*rows, strict=True) if rows else ((),) * len(table.c)
    return pa.table({c.name: _array(list(values)) for c, values in zip(table.c, columns, strict=True)})


def column_statistics(reader: CatalogStatements, snapshot: Snapshot, table_id: int) -> dict[int, list[dict[str, Any]]]:
    """Return the statistics of the columns in the files of a table at a snapshot, by file."""
    stats, files = reader._t["file_column_stats"], reader._t["data_file"]
    names = ("column_id", "value_count", "null_count", "min_value", "max_value", "contains_nan")
    alive = _files_of(stats, files, snapshot, table_id)
    statement = (
        sa.select(stats.c.data_file_id, *(stats.c[name] for name in names))
        .join(files, alive)
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
    stats, files = reader._t["file_column_stats"], reader._t["data_file"]
    alive = _files_of(stats, files, snapshot, table_id)
    statement = (
        sa.select(
            stats.c.data_file_id,
            stats.c.column_id,
            stats.c.min_value,
            stats.c.max_value,
            stats.c.null_count,
            reader._t.column("file_column_stats", "min_is_exact"),
            reader._t.column("file_column_stats", "max_is_exact"),
        )
        .join(files, alive)
        .where(stats.c.table_id == table_id, stats.c.column_id.in_(column_ids))
    )
    rows = reader.run("file_bounds", statement).all()
    is_known = ("file_column_stats", "min_is_exact") in reader._t.parts
    return {(row[0], row[1]): (row[2], row[3], row[4], not is_known or bool(row[5] and row[6])) for row in rows}


def _typed(values: list[Any], type_: pa.DataType) -> pa.Array:
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


def _files_of(stats: sa.Table, files: sa.Table, snapshot: Snapshot, table_id: int) -> sa.ColumnElement[bool]:
    """Return the condition that joins statistics with the files of a table at a snapshot."""
    return sa.and_(
        files.c.data_file_id == stats.c.data_file_id,
        files.c.table_id == table_id,
        files.c.begin_snapshot <= snapshot.id,
        sa.or_(files.c.end_snapshot.is_(None), files.c.end_snapshot > snapshot.id),
    )
