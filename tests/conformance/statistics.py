"""Check the statistics of a catalog: counts equal those of the data, bounds hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from quacklake.core.format.names import quote

from .clients import LakeSite, plain_duckdb
from .history import History

__all__ = ["check_file_statistics", "check_table_statistics", "file_statistics"]

_FILES = """
    SELECT f.data_file_id, f.record_count, s.path || t.path || f.path
    FROM {m}.ducklake_data_file f
    JOIN (SELECT DISTINCT table_id, schema_id, path FROM {m}.ducklake_table) t USING (table_id)
    JOIN (SELECT DISTINCT schema_id, path FROM {m}.ducklake_schema) s USING (schema_id)
"""


def file_statistics(site: LakeSite) -> list[tuple[Any, ...]]:
    """The statistics of every file but for ids and sizes, sorted.

    For types whose values the reference implementation does not count it says that there are none; that is unknown here.
    """
    unknown = "s.value_count + s.null_count = 0 AND f.record_count > 0"
    rows = site.metadata(
        "SELECT f.begin_snapshot, s.column_id, f.record_count,"
        f" CASE WHEN {unknown} THEN NULL ELSE s.value_count END, CASE WHEN {unknown} THEN NULL ELSE s.null_count END,"
        " s.min_value, s.max_value, s.contains_nan::BOOLEAN, s.extra_stats"
        " FROM {m}.ducklake_file_column_stats s JOIN {m}.ducklake_data_file f USING (data_file_id)"
    )
    return sorted(rows, key=str)


def check_file_statistics(site: LakeSite) -> int:
    """Every file's statistics against its rows; returns how many columns were looked at."""
    files = {id_: (records, path) for id_, records, path in site.metadata(_FILES)}
    stats = site.metadata(
        "SELECT data_file_id, column_id, value_count, null_count, min_value, max_value, contains_nan::BOOLEAN"
        " FROM {m}.ducklake_file_column_stats"
    )
    checked = 0
    with plain_duckdb() as connection:
        columns = {id_: _columns(connection, f"{site.data_path}/{path}") for id_, (_, path) in files.items()}
        for file, column, values, nulls, low, high, nan in stats:
            records, path = files[file]
            found = columns[file].get(column)
            if found is None or (found[1].endswith(("]", ")")) and not found[1].startswith("DECIMAL")):
                continue  # nested: compared with what the reference implementation writes instead
            name, type_ = found
            source = f"read_parquet('{site.data_path}/{path}')"
            where = f"column {name} of {path}"
            _check_bounds(connection, source, name, type_, low, high, where)
            counted, filled, nans = _counts(connection, source, name, type_)
            assert counted == records, where
            if values is not None and (values, nulls) != (0, 0):  # 0 and 0: of a type without statistics
                assert (values, nulls) == (filled, counted - filled), where
            assert nan is None or nan or not nans, where
            checked += 1
    return checked


def _columns(connection: duckdb.DuckDBPyConnection, path: str) -> dict[int, tuple[str, str]]:
    """The top-level columns of a Parquet file by field id."""
    described = {row[0]: row[1] for row in connection.execute(f"DESCRIBE FROM read_parquet('{path}')").fetchall()}
    ids = connection.execute(
        f"SELECT name, field_id FROM parquet_schema('{path}') WHERE field_id IS NOT NULL"
    ).fetchall()
    return {id_: (name, described[name]) for name, id_ in ids if name in described}


def _counts(connection: duckdb.DuckDBPyConnection, source: str, name: str, type_: str) -> tuple[int, int, int]:
    nans = f"count(*) FILTER (WHERE isnan({quote(name)}))" if type_ in ("FLOAT", "DOUBLE") else "0"
    row = connection.execute(f"SELECT count(*), count({quote(name)}), {nans} FROM {source}").fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def _check_bounds(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    name: str,
    type_: str,
    low: str | None,
    high: str | None,
    where: str,
) -> None:
    if low is None and high is None:
        return
    column = quote(name)
    # a column may have been widened since
    wide = "HUGEINT" if type_.endswith("INT") or type_ == "INTEGER" else type_
    bounds = ["unhex(?)" if type_ == "BLOB" else f"CAST(? AS {wide})"] * 2
    numbers = f"AND NOT isnan({column})" if type_ in ("FLOAT", "DOUBLE") else ""
    row = connection.execute(
        f"SELECT count(*) FROM {source} WHERE ({column} < {bounds[0]} OR {column} > {bounds[1]}) {numbers}", [low, high]
    ).fetchone()
    assert row == (0,), f"{where}: values outside of {low} … {high}"


def check_table_statistics(history: History) -> None:
    """The statistics of every table bound every row that any snapshot shows."""
    site = history.site
    found = site.metadata(
        "SELECT DISTINCT s.table_id, c.column_id, s.contains_null::BOOLEAN, s.contains_nan::BOOLEAN, s.min_value, s.max_value"
        " FROM {m}.ducklake_table_column_stats s"
        " JOIN {m}.ducklake_column c ON c.table_id = s.table_id AND c.column_id = s.column_id AND c.parent_column IS NULL"
    )
    stats = {(table, column): values for table, column, *values in found}
    with plain_duckdb() as connection:
        for version, table_id, rows, types in _everything(history):
            connection.register("seen", rows)
            for name, (column_id, type_) in types.items():
                if (table_id, column_id) not in stats:
                    continue
                null, nan, low, high = stats[(table_id, column_id)]
                where = f"column {name} of table {table_id} at {version}"
                cast = f"(SELECT CAST({quote(name)} AS {type_}) AS {quote(name)} FROM seen)"
                _check_bounds(connection, cast, name, type_, low, high, where)
                counted, filled, nans = _counts(connection, cast, name, type_)
                assert null is None or null or counted == filled, f"NULL in {where}"
                assert nan is None or nan or not nans, f"NaN in {where}"
            connection.unregister("seen")


def _everything(history: History) -> Iterator[tuple[int, int, Any, dict[str, tuple[int, str]]]]:
    """(snapshot, table id, rows, ids and types of its scalar columns) for every table of every snapshot."""
    lake = history.site.lake()
    for version in history.expected:
        view = lake.at(version=version)
        for info in view._tables():
            table = view.table(f"{quote(info.schema_name)}.{quote(info.name)}")
            scalars = [column for column in info.schema.columns if not column.nested]
            types = {column.name: (column.id, column.duckdb_type()) for column in scalars}
            if types:
                yield version, info.id, table.to_arrow(columns=list(types)), types
